#include "examples/study/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numbers>
#include <steadygrad/core/error.hpp>

namespace steady::examples {
namespace {

/// The first run of digits in a path, as a number; none for "head.weight".
std::optional<std::int64_t> layer_number(std::string_view path) {
  const std::size_t at = path.find_first_of("0123456789");
  if (at == std::string_view::npos) return std::nullopt;
  std::int64_t number = 0;
  std::from_chars(path.data() + at, path.data() + path.size(), number);
  return number;
}

/// Sums of values and counts by layer.
struct Sums {
  double squares = 0;
  double count = 0;
};

Profile root_mean(const std::map<std::int64_t, Sums>& sums) {
  Profile profile;
  for (const auto& [layer, sum] : sums) {
    profile.layer.push_back(layer);
    profile.value.push_back(std::sqrt(sum.squares / sum.count));
  }
  return profile;
}

void add_row(std::map<std::int64_t, Sums>& sums, const RunSeries& series, std::size_t row) {
  const auto layer = layer_number(series.path[1]);
  if (!layer || row >= series.step.size()) return;
  const double count = series.column("count")[row];
  const double rms = series.column("rms")[row];
  sums[*layer].squares += count * rms * rms;
  sums[*layer].count += count;
}

bool ends_with_number(std::string_view path) {
  return !path.empty() && path.back() >= '0' && path.back() <= '9';
}

/// The series that the report is made of.
bool is_used(const SeriesPath& path) {
  if (path.size() == 2) return path[0] == "training";
  if (path.size() != 3) return false;
  if (path[0] == "parameters") {
    return (path[2] == "gradient" || path[2] == "gradient_snr") && path[1].ends_with("weight");
  }
  const bool map = path[1].ends_with(".linear") || path[1].ends_with(".conv");
  const bool layer = ends_with_number(path[1]);
  return (path[2] == "output_gradient" && (map || layer)) || (path[2] == "output" && layer);
}

std::string value_text(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.3g}", value.get<double>());
  return value.dump();
}

}  // namespace

double Profile::first_to_last() const {
  return value.size() < 2 ? NAN : value.front() / value.back();
}

double growth_per_layer(const Profile& profile, std::int64_t low, std::int64_t high) {
  double n = 0;
  double sx = 0;
  double sy = 0;
  double sxx = 0;
  double sxy = 0;
  for (std::size_t i = 0; i < profile.layer.size(); ++i) {
    if (profile.layer[i] < low || profile.layer[i] > high) continue;
    if (!(profile.value[i] > 0) || !std::isfinite(profile.value[i])) continue;
    const auto x = static_cast<double>(profile.layer[i]);
    const double y = std::log(profile.value[i]);
    n += 1;
    sx += x;
    sy += y;
    sxx += x * x;
    sxy += x * y;
  }
  return n < 2 ? NAN : std::exp((n * sxy - sx * sy) / (n * sxx - sx * sx));
}

double batch_norm_growth(double batch) {
  const double c = -1 / (batch - 1);
  const double angle = std::numbers::pi - std::acos(c);
  const double j = (std::sqrt(1 - c * c) + angle * c) / std::numbers::pi;
  const double slope = angle / std::numbers::pi;
  return ((batch - 1 + slope) / (1 - j) - 1) / (batch - 3);
}

double Result::number(const char* name) const {
  const hdf5::Value* value = find(run.results, name);
  if (value == nullptr) return NAN;
  if (const auto* d = std::get_if<double>(value)) return *d;
  if (const auto* i = std::get_if<std::int64_t>(value)) return static_cast<double>(*i);
  return NAN;
}

std::string Result::text(const char* name) const {
  const hdf5::Value* value = find(run.results, name);
  return value == nullptr ? "" : hdf5::to_string(*value);
}

std::vector<double> Result::losses() const {
  const RunSeries* series = run.find({"training", "step"});
  return series == nullptr ? std::vector<double>{} : series->column("loss");
}

Profile Result::weight_gradients(std::size_t row) const {
  std::map<std::int64_t, Sums> sums;
  for (const RunSeries& series : run.series) {
    if (series.path.size() == 3 && series.path[0] == "parameters" && series.path[2] == "gradient" &&
        series.path[1].ends_with("weight") && series.path[1].find("norm") == std::string::npos &&
        series.path[1].find("ln_") == std::string::npos) {
      add_row(sums, series, row);
    }
  }
  return root_mean(sums);
}

Profile Result::activations(std::size_t row) const {
  std::map<std::int64_t, Sums> sums;
  for (const RunSeries& series : run.series) {
    if (series.path.size() == 3 && series.path[0] == "layers" && series.path[2] == "output" &&
        ends_with_number(series.path[1])) {
      add_row(sums, series, row);
    }
  }
  return root_mean(sums);
}

Profile Result::flow(std::size_t row) const {
  std::map<std::int64_t, Sums> sums;
  for (const RunSeries& series : run.series) {
    if (series.path.size() == 3 && series.path[0] == "layers" &&
        series.path[2] == "output_gradient" && ends_with_number(series.path[1])) {
      add_row(sums, series, row);
    }
  }
  Profile profile;
  for (const auto& [layer, sum] : sums) {
    profile.layer.push_back(layer);
    profile.value.push_back(std::sqrt(sum.squares));
  }
  return profile;
}

Profile Result::squared_flow() const {
  std::map<std::int64_t, Sums> sums;
  for (const RunSeries& series : run.series) {
    if (series.path.size() == 3 && series.path[0] == "layers" &&
        series.path[2] == "output_gradient" &&
        (series.path[1].ends_with(".linear") || series.path[1].ends_with(".conv"))) {
      add_row(sums, series, 0);
    }
  }
  Profile profile;
  for (const auto& [layer, sum] : sums) {
    profile.layer.push_back(layer);
    profile.value.push_back(sum.squares);
  }
  return profile;
}

double Result::signal_to_noise() const {
  std::vector<double> ratios;
  for (const RunSeries& series : run.series) {
    if (series.path.back() == "gradient_snr") ratios.push_back(series.column("value").front());
  }
  if (ratios.empty()) return NAN;
  std::ranges::sort(ratios);
  return ratios[ratios.size() / 2];
}

std::vector<std::int64_t> Result::sampled_steps() const {
  for (const RunSeries& series : run.series) {
    if (series.path[0] == "parameters" && series.path.back() == "gradient") return series.step;
  }
  return {};
}

std::vector<const Result*> Answer::deepest() const {
  std::int64_t depth = 0;
  for (const Result& r : results) depth = std::max(depth, r.cell.depth);
  std::vector<const Result*> chosen;
  for (const Result& r : results) {
    if (r.cell.depth != depth) continue;
    if (chosen.empty() || r.cell.seed == chosen.front()->cell.seed) chosen.push_back(&r);
  }
  return chosen;
}

StudyResults load_results(const std::filesystem::path& out) {
  StudyResults results;
  results.out = out;
  STEADY_CHECK(IoError, std::filesystem::exists(out / "plan.json"),
               "{}: no study is there (stability_study --out makes one)", out.string());
  results.plan = load_plan((out / "plan.json").string());
  for (const Question& question : results.plan.questions) {
    Answer& answer = results.answers.emplace_back();
    answer.question = question;
    for (const Cell& cell : question.cells) {
      const std::filesystem::path file = out / "cells" / (cell_id(cell) + ".h5");
      if (!std::filesystem::exists(file)) {
        ++results.missing;
        continue;
      }
      Result& result = answer.results.emplace_back(Result{cell, read_run(file, is_used), ""});
      result.status = result.text("status");
    }
  }
  return results;
}

std::string label(const Question& question, const Cell& cell,
                  const std::vector<std::string>& without) {
  const auto json = to_json(cell);
  std::string text;
  for (const std::string& key : question.vary) {
    if (std::ranges::find(without, key) != without.end()) continue;
    const std::string value = value_text(json[key]);
    if (key == "placement" && value == "none") continue;
    if (!text.empty()) text += ", ";
    const bool word = key == "norm" || key == "placement" || key == "input" || key == "model";
    text += word ? value : fmt::format("{} {}", key, value);
  }
  return text;
}

}  // namespace steady::examples
