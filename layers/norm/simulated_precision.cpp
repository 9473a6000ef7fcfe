#include <steadygrad/layers/norm/simulated_precision.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady {
namespace {

/// A binary format: numbers m * 2^(e - precision + 1) with e >= exponent_min.
struct Binary {
  int precision;
  int exponent_min;
  double largest;
};

Binary binary(LowFormat format) {
  return format == LowFormat::Bf16 ? Binary{8, -126, 0x1.FEp127} : Binary{11, -14, 65504};
}

/// Rounds to a low format or to float. One rounding of a result in double is the format's own
/// rounding of the exact result for +, -, *, / and the root of its numbers: double has more than
/// twice its digits.
struct Rounding {
  std::optional<LowFormat> format;
  double operator()(double v) const {
    return format ? round_to(*format, v) : static_cast<double>(static_cast<float>(v));
  }
};

struct Roundings {
  Rounding low;  // of what is stored
  Rounding sum;  // of what is computed between
};

struct Statistics {
  double mean, var;
};

/// `value(i)` is element i of a set, in the stored format already.
template <class Value>
Statistics statistics_of(std::int64_t count, const detail::SimulatedRule& rule, const Rounding& a,
                         const Value& value) {
  const auto n = static_cast<double>(count);
  double mean = 0, var = 0;
  if (rule.centred) {
    for (std::int64_t i = 0; i < count; ++i) mean = a(mean + value(i));
    mean = a(mean / n);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const double d = a(value(i) - mean);
    var = a(var + a(d * d));
  }
  return {mean, a(var / n)};
}

double rstd_of(double var, double eps, const Rounding& a) {
  return a(1.0 / std::sqrt(a(var + a(eps))));
}

/// The last steps: gain and shift in the order of the cast.
double scaled(double xhat, double w, double b, bool has_w, bool has_b, bool cast_before,
              bool unit_offset, const Roundings& r) {
  const Rounding& in = cast_before ? r.low : r.sum;
  double y = in(xhat);
  if (has_w) y = in(y * (unit_offset ? in(1.0 + w) : w));
  if (has_b) y = in(y + b);
  return r.low(y);
}

}  // namespace

double round_to(LowFormat format, double value) {
  if (!std::isfinite(value) || value == 0) return value;
  const Binary f = binary(format);
  const int exponent = std::max(std::ilogb(value), f.exponent_min);
  const double unit = std::ldexp(1.0, exponent - f.precision + 1);
  const double rounded = std::nearbyint(value / unit) * unit;
  if (std::abs(rounded) <= f.largest) return rounded;
  return std::copysign(std::numeric_limits<double>::infinity(), value);
}

std::string to_string(const SimulatedPrecision& p) {
  return fmt::format("simulate={}, accumulate={}, cast={}",
                     p.format == LowFormat::Bf16 ? "bf16" : "fp16", p.narrow ? "same" : "f32",
                     p.cast_before ? "before" : "after");
}

namespace detail {

std::optional<SimulatedPrecision> simulated_precision(const NormOptions& options) {
  const std::string& format = options.text("simulate");
  const bool narrow = options.text("accumulate") == "same";
  const bool before = options.text("cast") == "before";
  if (format == "none") {
    STEADY_CHECK(Error, !narrow && !before,
                 "norm options: accumulate and cast need simulate=bf16 or simulate=fp16");
    return std::nullopt;
  }
  return SimulatedPrecision{format == "bf16" ? LowFormat::Bf16 : LowFormat::Fp16, narrow, before};
}

template <class T>
void simulate_norm(const SimulatedSets& sets, const SimulatedRule& rule,
                   const SimulatedPrecision& precision, std::span<const T> x,
                   std::span<const T> gamma, std::span<const T> beta, std::span<const T> means,
                   std::span<const T> variances, std::span<T> y) {
  const Roundings r{{precision.format},
                    {precision.narrow ? std::optional(precision.format) : std::nullopt}};
  const auto at = [](const auto& span, std::int64_t i) {
    return static_cast<double>(span[static_cast<std::size_t>(i)]);
  };
  parallel_for(sets.sets, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t s = begin; s < end; ++s) {
      const auto place = [&](std::int64_t i) { return s * sets.step + i * sets.stride; };
      const auto value = [&](std::int64_t i) { return r.low(at(x, place(i))); };
      const Statistics stats = means.empty()
                                   ? statistics_of(sets.count, rule, r.sum, value)
                                   : Statistics{r.sum(at(means, s)), r.sum(at(variances, s))};
      const double rstd = rstd_of(stats.var, rule.eps, r.sum);
      for (std::int64_t i = 0; i < sets.count; ++i) {
        const std::int64_t c = place(i) % sets.affine;
        const double xhat = r.sum(r.sum(value(i) - stats.mean) * rstd);
        const double w = gamma.empty() ? 1.0 : r.low(at(gamma, c));
        const double b = beta.empty() ? 0.0 : r.low(at(beta, c));
        y[static_cast<std::size_t>(place(i))] = static_cast<T>(scaled(
            xhat, w, b, !gamma.empty(), !beta.empty(), precision.cast_before, rule.unit_offset, r));
      }
    }
  });
}

template void simulate_norm(const SimulatedSets&, const SimulatedRule&, const SimulatedPrecision&,
                            std::span<const float>, std::span<const float>, std::span<const float>,
                            std::span<const float>, std::span<const float>, std::span<float>);
template void simulate_norm(const SimulatedSets&, const SimulatedRule&, const SimulatedPrecision&,
                            std::span<const double>, std::span<const double>,
                            std::span<const double>, std::span<const double>,
                            std::span<const double>, std::span<double>);

}  // namespace detail
}  // namespace steady
