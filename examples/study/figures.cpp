#include "examples/study/figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "examples/study/gnuplot.hpp"

namespace steady::examples {
namespace {

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.3g}", value) : "-";
}

std::string csv_text(const std::string& text) {
  return text.find(',') == std::string::npos ? text : '"' + text + '"';
}

/// "curve,x,y" lines of everything drawn.
std::string csv_of(const std::string& x, const std::string& y, const std::vector<Curve>& curves) {
  std::string csv = fmt::format("curve,{},{}\n", csv_text(x), csv_text(y));
  for (const Curve& curve : curves) {
    for (std::size_t i = 0; i < curve.x.size(); ++i) {
      csv += fmt::format("{},{:.9g},{:.9g}\n", csv_text(curve.name), curve.x[i], curve.y[i]);
    }
  }
  return csv;
}

Curve curve_of(std::string name, const Profile& profile) {
  Curve curve{std::move(name), {}, profile.value};
  for (const std::int64_t layer : profile.layer) curve.x.push_back(static_cast<double>(layer));
  return curve;
}

std::string outcome(const Result& r) {
  if (r.trained()) return fmt::format("trained, final loss {}", number(r.number("final_loss")));
  if (r.status == "diverged" && std::isfinite(r.number("diverged_at"))) {
    return fmt::format("diverged at step {}", r.text("diverged_at"));
  }
  return r.status;
}

/// One sentence part per result, joined.
std::string each(const std::vector<const Result*>& results, const Question& question,
                 const std::vector<std::string>& without,
                 const std::function<std::string(const Result&)>& say) {
  std::string text;
  for (const Result* r : results) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", label(question, r->cell, without),
                        say(*r));
  }
  return text + ".";
}

Figure heat_map(const Answer& answer, const Result& r) {
  const std::vector<std::int64_t> steps = r.sampled_steps();
  std::vector<std::string> columns;
  std::vector<std::string> rows;
  std::vector<std::vector<double>> z;
  std::string csv = "step,layer,gradient RMS\n";
  for (std::size_t i = 0; i < steps.size(); ++i) {
    columns.push_back(std::to_string(steps[i]));
    const Profile profile = r.weight_gradients(i);
    z.resize(std::max(z.size(), profile.layer.size()), {});
    rows.resize(z.size());
    for (std::size_t k = 0; k < profile.layer.size(); ++k) {
      rows[k] = std::to_string(profile.layer[k]);
      z[k].resize(steps.size(), NAN);
      z[k][i] = profile.value[k];
      csv += fmt::format("{},{},{:.9g}\n", steps[i], profile.layer[k], profile.value[k]);
    }
  }
  const std::string what = label(answer.question, r.cell);
  std::string id = fmt::format("{}-heat-{}", answer.question.id, what);
  std::ranges::replace_if(
      id, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '-');
  return {std::move(id),
          fmt::format("{}: gradient RMS of each layer's weights over the steps, as log10; {}.",
                      what, outcome(r)),
          plot_heat(what, {.x = "step", .y = "layer"}, columns, rows, z), std::move(csv)};
}

/// One measure of the deepest runs' initial models, a line per choice.
struct ProfileMeasure {
  const char* id;
  const char* title;
  const char* axis;
  const char* definition;  // a sentence part, ends before "Measured"
  Profile (Result::*profile)(std::size_t row) const;
  bool ratio;  // say first over last; else the factor per layer
};

Figure profile_figure(const Answer& answer, const std::vector<const Result*>& results,
                      const ProfileMeasure& measure) {
  const std::vector<std::string> without{"depth", "seed"};
  const std::int64_t depth = results.front()->cell.depth;
  std::vector<Curve> curves;
  for (const Result* r : results) {
    curves.push_back(curve_of(label(answer.question, r->cell, without), (r->*measure.profile)(0)));
  }
  const auto say = [&](const Result& r) {
    const Profile profile = (r.*measure.profile)(0);
    return fmt::format(
        "{} ({})",
        number(measure.ratio ? profile.first_to_last() : growth_per_layer(profile, 0, depth)),
        outcome(r));
  };
  return {fmt::format("{}-{}", answer.question.id, measure.id),
          fmt::format("{} at the initial model, depth {}. {}: {}", measure.definition, depth,
                      measure.ratio ? "First over last layer" : "Factor per layer, log-linear fit",
                      each(results, answer.question, without, say)),
          plot_curves(fmt::format("{} ({} layers)", measure.title, depth),
                      {.x = "layer, from the input", .y = measure.axis, .log_y = true}, curves),
          csv_of("layer", measure.axis, curves)};
}

std::vector<Figure> profile_figures(const Answer& answer) {
  const std::vector<const Result*> results = answer.deepest();
  std::vector<Figure> figures;
  for (const ProfileMeasure& measure :
       {ProfileMeasure{"flow", "Gradient flow against depth", "gradient norm",
                       "Norm of the gradient of the loss by each layer's output: what the layers "
                       "below are given,",
                       &Result::flow, true},
        ProfileMeasure{"gradients", "Gradient RMS against depth", "gradient RMS",
                       "Gradient RMS of the weights of each layer", &Result::weight_gradients,
                       true},
        ProfileMeasure{"activations", "Activation RMS against depth", "activation RMS",
                       "RMS of each layer's output", &Result::activations, false}}) {
    figures.push_back(profile_figure(answer, results, measure));
  }
  for (const Result* r : results) {
    if (r->sampled_steps().size() < 2) continue;
    figures.push_back(heat_map(answer, *r));
    const std::string id = figures.back().id;  // cells may differ in members that do not vary
    for (int n = 2; std::ranges::count(figures, figures.back().id, &Figure::id) > 1; ++n) {
      figures.back().id = fmt::format("{}-{}", id, n);
    }
  }
  return figures;
}

std::vector<Figure> loss_figures(const Answer& answer) {
  std::vector<Curve> curves;
  std::vector<const Result*> results;
  for (const Result& r : answer.results) {
    if (r.cell.seed != answer.results.front().cell.seed) continue;
    results.push_back(&r);
    const std::vector<double> losses = r.losses();
    Curve& curve = curves.emplace_back(Curve{label(answer.question, r.cell, {"seed"}), {}, {}});
    double smooth = losses.empty() ? NAN : losses.front();
    for (std::size_t i = 0; i < losses.size(); ++i) {
      smooth = 0.9 * smooth + 0.1 * losses[i];
      curve.x.push_back(static_cast<double>(i));
      curve.y.push_back(smooth);
    }
  }
  return {{answer.question.id + "-loss",
           fmt::format("Training loss in nats, smoothed (0.9 of the past, 0.1 of the step). {}",
                       each(results, answer.question, {"seed"}, outcome)),
           plot_curves("Loss against steps",
                       {.x = "step", .y = "loss", .log_y = true, .points = false}, curves),
           csv_of("step", "smoothed loss", curves)}};
}

/// The member of a cell that a stability map has along its axis.
std::string map_axis(const Question& q) {
  for (const char* key : {"lr", "init_scale", "width", "batch", "depth", "steps", "warmup"}) {
    if (std::ranges::find(q.vary, key) != q.vary.end()) return key;
  }
  return "lr";
}

std::vector<Figure> stability_figures(const Answer& answer) {
  const std::string axis = map_axis(answer.question);
  std::vector<std::string> rows;
  std::vector<MapCell> cells;
  std::string csv = fmt::format("run,{},status,final loss\n", axis);
  std::map<std::string, std::pair<double, double>> range;  // smallest and largest that trained
  for (const Result& r : answer.results) {
    const std::string row = label(answer.question, r.cell, {axis, "seed"});
    auto at = std::ranges::find(rows, row);
    if (at == rows.end()) at = rows.insert(rows.end(), row);
    const double x = to_json(r.cell)[axis].get<double>();
    csv += fmt::format("{},{:.9g},{},{:.9g}\n", csv_text(row), x, r.status, r.number("final_loss"));
    if (r.trained()) {
      auto [entry, fresh] = range.try_emplace(row, x, x);
      entry->second = {std::min(entry->second.first, x), std::max(entry->second.second, x)};
    }
    if (r.cell.seed != answer.results.front().cell.seed) continue;
    cells.push_back({x, static_cast<std::size_t>(at - rows.begin()), r.number("final_loss"),
                     r.trained(), r.status != "stalled"});
  }
  std::string said;
  for (const std::string& row : rows) {
    const auto found = range.find(row);
    said += fmt::format("{}{}: {}", said.empty() ? "" : "; ", row,
                        found == range.end() ? "none"
                                             : fmt::format("{} to {}", number(found->second.first),
                                                           number(found->second.second)));
  }
  const auto positive = [](const MapCell& cell) { return cell.x > 0; };
  return {
      {answer.question.id + "-map",
       fmt::format(
           "What became of each run over {}: a filled square trained (brighter: smaller "
           "final loss), an open square stalled, a cross diverged or failed. Trained at: {}.",
           axis == "lr" ? "the learning rate" : axis, said),
       plot_map("Trained and failed runs",
                {.x = axis, .y = "", .log_x = std::ranges::all_of(cells, positive)}, rows, cells),
       std::move(csv)}};
}

std::vector<Figure> batch_figures(const Answer& answer) {
  std::vector<Curve> curves;
  for (const Result& r : answer.results) {
    if (r.cell.seed != answer.results.front().cell.seed) continue;
    const std::string name = label(answer.question, r.cell, {"batch", "lr", "steps", "seed"});
    auto at = std::ranges::find(curves, name, &Curve::name);
    if (at == curves.end()) at = curves.insert(curves.end(), Curve{name, {}, {}});
    at->x.push_back(static_cast<double>(r.cell.batch));
    const double accuracy = r.number("validation_accuracy");
    at->y.push_back(std::isfinite(accuracy) ? 100 * (1 - accuracy) : 100);
  }
  std::string said;
  for (const Curve& curve : curves) {
    std::string errors;
    for (std::size_t i = 0; i < curve.x.size(); ++i) {
      errors += fmt::format("{}{:.1f} % at {:g}", i == 0 ? "" : ", ", curve.y[i], curve.x[i]);
    }
    if (!curve.name.empty()) errors = curve.name + ": " + errors;
    said += (said.empty() ? "" : "; ") + errors;
  }
  return {{answer.question.id + "-error",
           fmt::format("Validation error in percent against batch size, statistics of evaluation "
                       "where the norm has them (a run that diverged or failed counts as 100). {}.",
                       said),
           plot_curves("Validation error against batch size",
                       {.x = "batch size", .y = "error, %", .log_x = true}, curves),
           csv_of("batch", "error %", curves)}};
}

std::vector<Figure> curvature_figures(const Answer& answer) {
  std::vector<Curve> curves;
  std::vector<const Result*> results;
  for (const Result& r : answer.results) {
    const RunSeries* along = r.run.find({"training", "along_gradient"});
    if (along == nullptr) continue;
    results.push_back(&r);
    curves.push_back(
        {label(answer.question, r.cell), along->column("rate"), along->column("gradient_change")});
  }
  if (results.empty()) return {};
  const auto say = [](const Result& r) {
    return fmt::format("{}, {}", number(r.number("sharpness")), number(r.signal_to_noise()));
  };
  return {{answer.question.id + "-along",
           fmt::format("Change of the gradient, |g' - g| / |g|, after a step of plain gradient "
                       "descent from the initial model, over its rate: small means that the "
                       "gradient can be trusted that far. Sharpness (largest Hessian eigenvalue), "
                       "then the weights' median gradient signal to noise: {}",
                       each(results, answer.question, {}, say)),
           plot_curves("Gradient change along the gradient",
                       {.x = "rate", .y = "relative change", .log_x = true, .log_y = true}, curves),
           csv_of("rate", "relative change", curves)}};
}

std::vector<Figure> growth_figures(const Answer& answer) {
  std::vector<Curve> curves;
  std::map<std::string, std::vector<double>> rates;
  std::vector<std::string> order;
  std::map<std::string, double> theory;
  for (const Result& r : answer.results) {
    const std::string name = label(answer.question, r.cell, {"seed"});
    const Profile flow = r.squared_flow();
    if (!rates.contains(name)) order.push_back(name);
    rates[name].push_back(growth_per_layer(flow, 5, r.cell.depth - 5));
    if (r.cell.norm.starts_with("batch")) {
      theory[name] = batch_norm_growth(static_cast<double>(r.cell.batch));
    }
    if (r.cell.seed == answer.results.front().cell.seed) curves.push_back(curve_of(name, flow));
  }
  std::string said;
  for (const std::string& name : order) {
    double mean = 0;  // of the logarithms
    for (const double rate : rates[name]) mean += std::log(rate);
    // Depth counts from the input; the gradient grows on its way back, towards it.
    const double growth = std::exp(-mean / static_cast<double>(rates[name].size()));
    said += fmt::format("{}{}: {}", said.empty() ? "" : "; ", name,
                        std::isfinite(growth) ? fmt::format("{:.3f}", growth) : "-");
    if (theory.contains(name)) said += fmt::format(" (theory {:.3f})", theory[name]);
  }
  return {{answer.question.id + "-flow",
           fmt::format("Squared norm of the gradient that flows into each layer's linear map, at "
                       "the initial model. Factor per layer towards the input, log-linear fit "
                       "without the five outer layers, geometric mean over the seeds: {}.",
                       said),
           plot_curves("Squared gradient norm against depth",
                       {.x = "layer, from the input", .y = "squared norm", .log_y = true}, curves),
           csv_of("layer", "squared norm", curves)}};
}

}  // namespace

std::vector<Figure> make_figures(const Answer& answer) {
  if (answer.results.empty()) return {};
  const std::string& kind = answer.question.figure;
  if (kind == "profile") return profile_figures(answer);
  if (kind == "loss") return loss_figures(answer);
  if (kind == "stability") return stability_figures(answer);
  if (kind == "batch") return batch_figures(answer);
  if (kind == "curvature") return curvature_figures(answer);
  return growth_figures(answer);
}

std::vector<std::pair<std::string, std::string>> measure_definitions() {
  return {
      {"trained, stalled, diverged",
       "Trained: the mean loss of the last 10 steps is below 0.95 of the entropy of the targets' "
       "frequencies, so the model uses its input. Diverged: a loss or gradient that is not finite, "
       "or a final loss above twice the first. Stalled: neither."},
      {"gradient RMS of a layer",
       "sqrt(mean(g^2)) over the gradients of all weights of a layer (convolution, linear and "
       "attention maps; norms and biases left out), before clipping."},
      {"gradient flow of a layer",
       "Norm of the gradient of the loss by the layer's output: what the layers below are given. "
       "Without a norm the gradient of a weight is this flow times the layer's input, so that a "
       "signal that vanishes forward and a flow that vanishes backward hide each other there."},
      {"first to last", "The value of the first layer over that of the last."},
      {"factor per layer", "exp of the slope of a least-squares line through (layer, log value)."},
      {"gradient signal to noise",
       "|mean g|^2 / (sum |g - mean g|^2 / 7) per parameter, over the gradients of 8 batches at "
       "the "
       "initial model. In the logs as parameters/NAME/gradient_snr."},
      {"gradient predictiveness",
       "|g(w - r g) - g(w)| / |g(w)| along the negative gradient g, at rates r [Santurkar et al. "
       "2018]. In the logs of cells with curvature: training/along_gradient."},
      {"sharpness",
       "Largest eigenvalue of the Hessian of the loss on one batch, by Lanczos iteration on exact "
       "Hessian-vector products. A result of cells with curvature."},
      {"largest stable learning rate",
       "The largest rate of the plan's grid at which a run trained."},
  };
}

}  // namespace steady::examples
