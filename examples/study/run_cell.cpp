#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <steadygrad/steadygrad.hpp>
#include <vector>

#include "examples/study/runner.hpp"
#include "examples/study/task.hpp"

namespace steady::examples {
namespace {

namespace fs = std::filesystem;

hdf5::Attributes log_options(const Cell& cell) {
  hdf5::Attributes options;
  const nlohmann::ordered_json json = to_json(cell);
  for (const auto& [key, value] : json.items()) {
    if (value.is_string()) {
      options.emplace_back(key, value.get<std::string>());
    } else if (value.is_number_float()) {
      options.emplace_back(key, value.get<double>());
    } else if (value.is_boolean()) {
      options.emplace_back(key, std::int64_t{value.get<bool>() ? 1 : 0});
    } else {
      options.emplace_back(key, value.get<std::int64_t>());
    }
  }
  return options;
}

std::unique_ptr<Optimizer> make_optimizer(const Cell& cell, const Layer& model) {
  if (cell.optimizer == "adamw") {
    return std::make_unique<AdamW>(model.parameters(), AdamWOptions{.lr = cell.lr});
  }
  return std::make_unique<Sgd>(
      model.parameters(),
      SgdOptions{.lr = cell.lr, .momentum = cell.optimizer == "sgd" ? 0.9 : 0.0});
}

/// Entropy of the targets' frequencies in nats: the loss of a model that has learned nothing else.
double frequency_entropy(Task& task) {
  std::vector<double> counts;
  double total = 0;
  for (std::int64_t step = 0; step < 20; ++step) {
    const Tensor y = task.training(step).y;
    for (const std::int64_t label : y.data<std::int64_t>()) {
      const auto at = static_cast<std::size_t>(label);
      if (counts.size() <= at) counts.resize(at + 1);
      ++counts[at];
      ++total;
    }
  }
  double entropy = 0;
  for (const double count : counts) {
    if (count > 0) entropy -= count / total * std::log(count / total);
  }
  return entropy;
}

/// |mean g|^2 / (mean |g - mean g|^2) over the gradients of 8 batches, per parameter.
void log_signal_to_noise(Task& task, RunLog& log) {
  constexpr std::int64_t Batches = 8;
  const std::vector<Parameter> parameters = task.model().parameters();
  std::vector<std::vector<double>> sums(parameters.size());
  std::vector<double> squares(parameters.size());
  const NoStateUpdate still;
  for (std::int64_t i = 0; i < Batches; ++i) {
    const Dataset batch = task.training(i);
    Tape tape;
    const Gradients gradients = tape.backward(cross_entropy(task.model()(batch.x), batch.y));
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const Tensor* gradient = gradients.find(parameters[p].value);
      if (gradient == nullptr) continue;
      const auto g = gradient->data<float>();
      sums[p].resize(g.size());
      for (std::size_t k = 0; k < g.size(); ++k) {
        sums[p][k] += double{g[k]};
        squares[p] += double{g[k]} * double{g[k]};
      }
    }
  }
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (parameters[p].role != Role::Weight) continue;
    double signal = 0;
    for (const double sum : sums[p]) signal += sum * sum / (Batches * Batches);
    const double noise = (squares[p] - Batches * signal) / (Batches - 1);
    log.append({"parameters", parameters[p].name, "gradient_snr"}, 0, {{"value", signal / noise}});
  }
}

/// Sharpness and predictiveness of the initial model on its first batch.
void log_curvature(Task& task, RunLog& log) {
  const NoStateUpdate still;
  const Dataset batch = task.training(0);
  const LossFunction loss = [&] { return cross_entropy(task.model()(batch.x), batch.y); };
  std::vector<Tensor> leaves;
  for (const Parameter& p : task.model().parameters()) leaves.push_back(p.value);
  try {
    const Eigenvalue top = top_eigenvalue(loss, leaves, {.iterations = 20, .tolerance = 1e-2});
    log.set("sharpness", top.value);
    log.set("sharpness_residual", top.residual);
  } catch (const NonFiniteError& error) {
    log.set("sharpness", NAN);
    log.set("sharpness_reason", std::string(error.what()));
  }
  const std::vector<double> rates{0.025, 0.05, 0.1, 0.2, 0.4};
  for (const AlongGradient& a : along_gradient(loss, leaves, rates)) {
    log.append({"training", "along_gradient"}, 0,
               {{"rate", a.rate},
                {"loss", a.loss},
                {"gradient_change", a.gradient_change},
                {"smoothness", a.smoothness}});
  }
}

/// What anomaly mode says about a batch that gave something not finite; "" when it gives finite
/// numbers in a forward and backward of its own.
std::string first_non_finite(Task& task, const Dataset& batch) {
  const NoStateUpdate still;
  try {
    const AnomalyMode anomaly;
    Tape tape;
    (void)tape.backward(cross_entropy(task.model()(batch.x), batch.y));
    return "";
  } catch (const NonFiniteError& error) {
    return error.what();
  }
}

class Run {
 public:
  Run(const Cell& cell, Task& task, RunLog& log)
      : cell_(cell), task_(task), log_(log), optimizer_(make_optimizer(cell, task.model())) {}

  void train() {
    const Schedule schedule = cell_.warmup > 0
                                  ? warmup_schedule(cell_.warmup, constant_schedule(cell_.lr))
                                  : constant_schedule(cell_.lr);
    const std::int64_t every = std::max<std::int64_t>(1, cell_.steps / 20);
    Probe probe(task_.model(), {.every = every}, log_probe(log_));
    const std::int64_t forwards = std::max<std::int64_t>(1, cell_.steps);
    for (std::int64_t step = 0; step < forwards && !diverged_; ++step) {
      const double lr = schedule(step);
      optimizer_->set_lr(lr);
      take_step(step, lr);
    }
    probe.finish();
  }

  void conclude() {
    const double entropy = frequency_entropy(task_);
    const std::size_t last = std::min<std::size_t>(10, losses_.size());
    const double final_loss =
        last == 0 ? NAN
                  : std::accumulate(losses_.end() - static_cast<std::ptrdiff_t>(last),
                                    losses_.end(), 0.0) /
                        static_cast<double>(last);
    const bool learned = final_loss < 0.95 * entropy;
    log_.set("status", std::string(diverged_                          ? "diverged"
                                   : cell_.steps == 0                 ? "initial"
                                   : learned                          ? "trained"
                                   : final_loss > 2 * losses_.front() ? "diverged"
                                                                      : "stalled"));
    log_.set("final_loss", final_loss);
    log_.set("frequency_entropy", entropy);
    if (!diverged_ && cell_.steps > 0) validate();
  }

 private:
  void take_step(std::int64_t step, double lr) {
    const Dataset batch = task_.training(step);
    double norm = NAN;
    double value = NAN;
    std::string refused;  // by the gradient norm, or by statistics that it would spoil
    try {
      Tape tape;
      const Tensor loss = cross_entropy(task_.model()(batch.x), batch.y);
      value = loss.item();
      const Gradients gradients = tape.backward(loss);
      norm = INFINITY;  // unless it is a number
      norm = grad_norm(gradients, optimizer_->parameters());
      if (std::isfinite(value) && std::isfinite(norm) && cell_.steps > 0) {
        optimizer_->step(gradients);
      }
    } catch (const NonFiniteError& error) {
      refused = error.what();
    }
    log_.append({"training", "step"}, step, {{"loss", value}, {"lr", lr}, {"gradient_norm", norm}});
    if (std::isfinite(value) && std::isfinite(norm)) {
      losses_.push_back(value);
      return;
    }
    diverged_ = true;
    log_.set("diverged_at", step);
    const std::string first = first_non_finite(task_, batch);
    log_.set("first_non_finite", first.empty() ? refused : first);
  }

  void validate() {
    Layer& model = task_.model();
    model.eval();
    double loss = 0;
    double count = 0;
    double correct = 0;
    for (const Dataset& piece : task_.validation()) {
      const Tensor logits = model(piece.x);
      const auto n = static_cast<double>(piece.y.numel());
      loss += n * cross_entropy(logits, piece.y).item();
      correct += static_cast<double>(count_correct(logits, piece.y));
      count += n;
    }
    model.train();
    log_.set("validation_loss", loss / count);
    log_.set("validation_accuracy", correct / count);
  }

  const Cell& cell_;
  Task& task_;
  RunLog& log_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<double> losses_;
  bool diverged_ = false;
};

/// Written at the beginning and the end alone: what is flushed between them moves what comes after
/// it in the file, and a cell's bytes must not depend on how long it took.
constexpr RunLogOptions AtTheEnd{.flush_seconds = -1};

fs::path partial(const fs::path& file) { return fs::path(file).replace_extension(".partial.h5"); }

}  // namespace

void run_cell(const Cell& cell, const fs::path& file, const std::string& data) {
  RunLog log(partial(file), log_options(cell), AtTheEnd);
  const std::unique_ptr<Task> task = make_task(cell, {.directory = data});
  log.set("data", task->source());
  log.set("parameters", task->model().parameter_count());
  log_signal_to_noise(*task, log);
  if (cell.curvature) log_curvature(*task, log);
  Run run(cell, *task, log);
  run.train();
  run.conclude();
  log.close();
  fs::rename(partial(file), file);
}

void write_failed_cell(const Cell& cell, const fs::path& file, const std::string& reason) {
  RunLog log(partial(file), log_options(cell), AtTheEnd);
  log.set("status", std::string("failed"));
  log.set("reason", reason);
  log.close();
  fs::rename(partial(file), file);
}

}  // namespace steady::examples
