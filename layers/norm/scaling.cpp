#include <steadygrad/layers/norm/scaling.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/layers/norm/column_map.hpp>

namespace steady {
namespace {

constexpr double Nan = std::numeric_limits<double>::quiet_NaN();

std::int64_t checked_features(const char* name, std::int64_t features) {
  STEADY_CHECK(Error, features >= 1, "{}: needs features >= 1; got {}", name, features);
  return features;
}

/// Element c of a floating buffer, whatever its dtype.
double value(const Tensor& buffer, std::size_t c) {
  return dispatch_float("scaling", buffer.dtype(),
                        [&]<FloatElement T>() { return static_cast<double>(buffer.data<T>()[c]); });
}

void write(Tensor& buffer, std::span<const double> values) {
  const Tensor wide = Tensor::from<double>(buffer.shape(), values);
  buffer.copy_from(wide.detached_copy(buffer.dtype()), "fit");
}

Tensor zeros(std::int64_t features) { return Tensor::zeros({features}, Dtype::F64); }

}  // namespace

// --- what all scalings do ----------------------------------------------------------------------

std::string to_string(const ScaleReport& report) {
  std::string line = fmt::format("{} rows", report.rows);
  const auto list = [&](const char* what, const std::vector<std::int64_t>& features) {
    if (!features.empty())
      line += fmt::format("; {}: features {}", what, fmt::join(features, ", "));
  };
  if (!report.missing.empty()) {
    std::vector<std::string> counts;
    for (const auto& [feature, count] : report.missing) {
      counts.push_back(fmt::format("{} ({})", feature, count));
    }
    line += fmt::format("; NaN left out: features {}", fmt::join(counts, ", "));
  }
  list("nothing but NaN, gives NaN", report.empty);
  list("constant, divided by 1", report.constant);
  list("no spread, divided by 1", report.unspread);
  return line;
}

DataScale::DataScale(const char* name, std::int64_t features)
    : rows(add_buffer("rows", Tensor::scalar(0, Dtype::I64))),
      count(add_buffer("count", Tensor::zeros({checked_features(name, features)}, Dtype::I64))),
      data_min(add_buffer("data_min", zeros(features))),
      data_max(add_buffer("data_max", zeros(features))),
      name_(name),
      features_(features) {}

bool DataScale::fitted() const { return rows.data<std::int64_t>()[0] > 0; }

detail::FeatureSummary DataScale::fresh() const { return {features_, keeps_values()}; }

void DataScale::fit(const Tensor& data) { fit(std::array{data}); }

void DataScale::extend(const Tensor& batch) {
  detail::FeatureSummary s = summary();
  s.add(name_, batch);
  commit(s);
}

void DataScale::commit(const detail::FeatureSummary& summary) {
  STEADY_CHECK(Error, summary.rows > 0, "{}: a fit needs at least one row", name_);
  store(summary);
}

detail::FeatureSummary DataScale::summary() const {
  detail::FeatureSummary s = fresh();
  s.rows = rows.data<std::int64_t>()[0];
  for (std::size_t c = 0; c < s.low.size(); ++c) {
    s.moments[c].n = static_cast<double>(count.data<std::int64_t>()[c]);
    if (s.moments[c].n == 0) continue;
    s.low[c] = value(data_min, c);
    s.high[c] = value(data_max, c);
  }
  return s;
}

void DataScale::store(const detail::FeatureSummary& summary) {
  rows.mutable_data<std::int64_t>("fit")[0] = summary.rows;
  std::vector<double> low = summary.low, high = summary.high;
  const std::span<std::int64_t> counts = count.mutable_data<std::int64_t>("fit");
  for (std::size_t c = 0; c < low.size(); ++c) {
    counts[c] = static_cast<std::int64_t>(summary.moments[c].n);
    if (counts[c] == 0) low[c] = high[c] = 0;  // files hold no infinities
  }
  write(data_min, low);
  write(data_max, high);
}

Tensor DataScale::map(bool inverse) const {
  STEADY_CHECK(Error, fitted(), "{}: not fitted yet: call fit(batches), or load a state", name_);
  const auto features = static_cast<std::size_t>(features_);
  const auto [low, high] = range();
  Tensor map = Tensor::empty({4, features_}, Dtype::F64);
  const std::span<double> lines = map.mutable_data<double>("fit");
  for (std::size_t c = 0; c < features; ++c) {
    const bool empty = count.data<std::int64_t>()[c] == 0;
    const Spread s = empty ? Spread{Nan, Nan} : spread(c);
    std::array forward{s.shift, s.scale == 0 ? 1.0 : s.scale, high - low, low};
    if (inverse) std::ranges::reverse(forward);
    for (std::size_t line = 0; line < forward.size(); ++line) {
      lines[line * features + c] = forward[line];
    }
  }
  return map;
}

Tensor DataScale::forward(const Tensor& x) { return column_map(x, map(false)); }
Tensor DataScale::inverse(const Tensor& y) const { return column_map(y, map(true)); }

ScaleReport DataScale::report() const {
  ScaleReport report;
  report.rows = rows.data<std::int64_t>()[0];
  for (std::int64_t c = 0; c < features_ && report.rows > 0; ++c) {
    const auto at = static_cast<std::size_t>(c);
    const std::int64_t there = count.data<std::int64_t>()[at];
    if (there < report.rows) report.missing.push_back({c, report.rows - there});
    if (there == 0) {
      report.empty.push_back(c);
    } else if (value(data_min, at) == value(data_max, at)) {
      report.constant.push_back(c);
    } else if (spread(at).scale == 0) {
      report.unspread.push_back(c);
    }
  }
  return report;
}

std::string DataScale::text(const std::string& options) const {
  const std::string state =
      fitted() ? fmt::format("fitted to {} rows", rows.data<std::int64_t>()[0]) : "not fitted";
  return fmt::format("{}({}{}, {})", name_, features_, options, state);
}

// --- the three ---------------------------------------------------------------------------------

MinMaxScale::MinMaxScale(const Options& options)
    : DataScale("MinMaxScale", options.features), o(options) {
  STEADY_CHECK(Error, std::isfinite(o.low) && std::isfinite(o.high) && o.low < o.high,
               "MinMaxScale: low must be below high, both finite; got {} and {}", o.low, o.high);
}

Tensor MinMaxScale::forward(const Tensor& x) {
  const Tensor y = DataScale::forward(x);
  return o.clip ? clamp(y, o.low, o.high) : y;
}

DataScale::Spread MinMaxScale::spread(std::size_t c) const {
  const double low = value(data_min, c);
  return {low, value(data_max, c) - low};
}

std::string MinMaxScale::describe() const {
  return text(fmt::format(", {}..{}{}", o.low, o.high, o.clip ? ", clip" : ""));
}

Standardize::Standardize(const Options& options)
    : DataScale("Standardize", options.features),
      o(options),
      mean(add_buffer("mean", zeros(o.features))),
      var(add_buffer("var", zeros(o.features))) {}

DataScale::Spread Standardize::spread(std::size_t c) const {
  // Of one value the rounding of its mean may leave a variance.
  const bool constant = value(data_min, c) == value(data_max, c);
  const double shift = constant ? value(data_min, c) : value(mean, c);
  const double scale = constant ? 0 : std::sqrt(value(var, c));
  return {o.with_mean ? shift : 0, o.with_std ? scale : 1};
}

detail::FeatureSummary Standardize::summary() const {
  detail::FeatureSummary s = DataScale::summary();
  for (std::size_t c = 0; c < s.moments.size(); ++c) {
    s.moments[c].mean = value(mean, c);
    s.moments[c].m2 = value(var, c) * s.moments[c].n;
  }
  return s;
}

void Standardize::store(const detail::FeatureSummary& summary) {
  DataScale::store(summary);
  std::vector<double> means, variances;
  for (const Moments& m : summary.moments) {
    means.push_back(m.n == 0 ? 0 : m.mean);
    variances.push_back(m.n == 0 ? 0 : m.variance());
  }
  write(mean, means);
  write(var, variances);
}

std::string Standardize::describe() const {
  return text(fmt::format("{}{}", o.with_mean ? "" : ", with_mean=false",
                          o.with_std ? "" : ", with_std=false"));
}

RobustScale::RobustScale(const Options& options)
    : DataScale("RobustScale", options.features),
      o(options),
      center(add_buffer("center", zeros(o.features))),
      scale(add_buffer("scale", zeros(o.features))) {
  STEADY_CHECK(Error,
               o.low_quantile >= 0 && o.low_quantile < o.high_quantile && o.high_quantile <= 1,
               "RobustScale: needs 0 <= low_quantile < high_quantile <= 1; got {} and {}",
               o.low_quantile, o.high_quantile);
}

DataScale::Spread RobustScale::spread(std::size_t c) const {
  return {o.with_center ? value(center, c) : 0, o.with_scale ? value(scale, c) : 1};
}

void RobustScale::store(const detail::FeatureSummary& summary) {
  std::vector<double> medians, spreads;
  for (std::vector<double> values : summary.kept) {
    std::ranges::sort(values);
    const bool empty = values.empty();
    medians.push_back(empty ? 0 : detail::quantile(values, 0.5));
    spreads.push_back(empty ? 0
                            : detail::quantile(values, o.high_quantile) -
                                  detail::quantile(values, o.low_quantile));
  }
  DataScale::store(summary);
  write(center, medians);
  write(scale, spreads);
}

std::string RobustScale::describe() const {
  return text(fmt::format(", quantiles {}..{}", o.low_quantile, o.high_quantile));
}

}  // namespace steady
