#include "examples/inspect/health.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace steady::examples::inspect {
namespace {

constexpr double Zero = 1e-6;
constexpr double TinyVariance = 1e-8;
constexpr double OutlierRatio = 20.0;

using Values = std::vector<double>;

void check_finite(NormFinding& norm, const TensorEntry& t, const Values& values) {
  const auto nan = std::ranges::count_if(values, [](double v) { return std::isnan(v); });
  const auto inf = std::ranges::count_if(values, [](double v) { return std::isinf(v); });
  if (nan + inf > 0) {
    norm.health.push_back(fmt::format("{}: {} NaN and {} infinite of {}", last_part(t.name), nan,
                                      inf, values.size()));
  }
}

void check_gains(NormFinding& norm, Values gains) {
  for (double& g : gains) g = std::fabs(g + norm.unit_offset);
  std::erase_if(gains, [](double g) { return !std::isfinite(g); });
  if (gains.empty()) return;
  const auto zero = std::ranges::count_if(gains, [](double g) { return g < Zero; });
  if (zero == static_cast<std::ptrdiff_t>(gains.size())) {
    norm.health.emplace_back("every gain is 0: the output is the shift alone");
    return;
  }
  if (zero > 0) norm.health.push_back(fmt::format("{} of {} gains are 0", zero, gains.size()));
  const double most = *std::ranges::max_element(gains);
  const auto middle = gains.begin() + static_cast<std::ptrdiff_t>(gains.size() / 2);
  std::ranges::nth_element(gains, middle);
  const double median = *middle;
  if (median > Zero && most > OutlierRatio * median) {
    const auto beyond =
        std::ranges::count_if(gains, [&](double g) { return g > OutlierRatio * median; });
    norm.health.push_back(fmt::format("{} outliers: the largest gain is {:.3g}, the median {:.3g}",
                                      beyond, most, median));
  }
}

void check_variance(NormFinding& norm, const Values& variance) {
  const auto negative = std::ranges::count_if(variance, [](double v) { return v < 0.0; });
  const auto tiny =
      std::ranges::count_if(variance, [](double v) { return v >= 0.0 && v < TinyVariance; });
  if (negative > 0) {
    norm.health.push_back(
        fmt::format("{} of {} running variances are negative", negative, variance.size()));
  }
  if (tiny > 0) {
    norm.health.push_back(fmt::format("{} of {} running variances are below {}", tiny,
                                      variance.size(), TinyVariance));
  }
}

void check_values(NormFinding& norm) {
  for (const TensorEntry* t :
       {norm.gain, norm.shift, norm.alpha, norm.running_mean, norm.running_var}) {
    if (t == nullptr) continue;
    const Values values = t->read();
    check_finite(norm, *t, values);
    if (t == norm.gain) check_gains(norm, values);
    if (t == norm.running_var) check_variance(norm, values);
    if (t != norm.alpha && norm.width > 0 && !t->dims.empty() && t->dims.back() != norm.width) {
      norm.health.push_back(
          fmt::format("{} has width {}, not {}", last_part(t->name), t->dims.back(), norm.width));
    }
  }
}

/// The path with '*' for every number: the same norm of all blocks.
std::string without_numbers(const std::string& path) {
  std::string result;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    result += (begin == 0 ? "" : ".") + (number ? "*" : part);
    begin = end + 1;
  }
  return result;
}

/// Norms of a Transformer's blocks have one width; those of a convolutional model have many.
void check_widths(std::vector<NormFinding>& norms, const Config& config) {
  std::map<std::string, std::map<std::int64_t, std::size_t>> seen;
  const auto counts = [](const NormFinding& n) {
    return !n.has_running_stats() && n.width > 0 && !is_query_or_key_norm(n.path) &&
           (n.kind == Kind::LayerNorm || n.kind == Kind::RmsNorm || n.kind == Kind::DynamicTanh);
  };
  for (const NormFinding& n : norms) {
    if (counts(n)) ++seen[without_numbers(n.path)][n.width];
  }
  const auto hidden = config.first_number({"hidden_size", "n_embd", "d_model", "embed_dim"});
  for (NormFinding& n : norms) {
    if (!counts(n)) continue;
    const auto& widths = seen[without_numbers(n.path)];
    const auto usual =
        std::ranges::max_element(widths, {}, [](const auto& entry) { return entry.second; });
    if (usual->first != n.width && widths.size() == 2) {
      n.health.push_back(
          fmt::format("width {} where the other blocks have {}", n.width, usual->first));
    } else if (!n.place.empty() && hidden && hidden->second != static_cast<double>(n.width)) {
      n.health.push_back(fmt::format("width {}, but the config's {} is {}", n.width, hidden->first,
                                     hidden->second));
    }
  }
}

}  // namespace

void check_health(std::vector<NormFinding>& norms, const Config& config) {
  for (NormFinding& norm : norms) check_values(norm);
  check_widths(norms, config);
}

}  // namespace steady::examples::inspect
