#pragma once

#include <array>
#include <cstdint>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/norm/feature_summary.hpp>
#include <string>
#include <vector>

namespace steady {

/// What a fit met: features by their number, from 0.
struct ScaleReport {
  struct Missing {
    std::int64_t feature;
    std::int64_t count;
    friend bool operator==(const Missing&, const Missing&) = default;
  };
  std::int64_t rows = 0;
  std::vector<Missing> missing;        ///< NaN values, left out of the statistics
  std::vector<std::int64_t> empty;     ///< nothing but NaN: whatever comes gives NaN
  std::vector<std::int64_t> constant;  ///< one value only: divided by 1
  std::vector<std::int64_t> unspread;  ///< several values, spread 0 all the same: divided by 1

  [[nodiscard]] bool clean() const {
    return missing.empty() && empty.empty() && constant.empty() && unspread.empty();
  }
};
/// In one line; "100 rows" alone when there is nothing to say.
[[nodiscard]] std::string to_string(const ScaleReport& report);

/// A scaling of features (the last axis) that is fitted to data, not learned. Its statistics are
/// buffers, so a saved model carries its scaling, and load() is as good as fit():
///
///   struct Net : Layer { ... Standardize& scale = add<Standardize>("scale", {.features = 20}); };
///   net.initialize(1);                       // resets buffers: fit after it
///   net.scale.fit(batches(train));           // any range of tensors, or of batches with an x
///   std::cout << to_string(net.scale.report());
///
/// The same in every mode. Statistics are float64 unless the model is converted with to(). NaN is a
/// missing value: left out of the fit, and NaN stays NaN in forward; an infinity is refused.
/// Computed in double and rounded once, so that inverse(forward(x)) is x to the rounding of x.
class DataScale : public Layer {
 public:
  /// Forgets what it knew and fits to all batches, [..., features] each. An exception leaves the
  /// statistics as they were. Throws Error when there is no row, NonFiniteError naming feature and
  /// row for an infinity, ShapeError for another shape.
  template <class Range>
  void fit(const Range& batches) {
    detail::FeatureSummary summary = fresh();
    for (const auto& batch : batches) {
      if constexpr (requires { batch.x; }) {
        summary.add(name_, batch.x);
      } else {
        summary.add(name_, batch);
      }
    }
    commit(summary);
  }
  /// The same for data in one tensor.
  void fit(const Tensor& data);

  /// x: [..., features], f32 or f64. Differentiable to any order. Throws Error before a fit.
  Tensor forward(const Tensor& x) override;
  /// The reverse, for predictions in scaled units.
  [[nodiscard]] Tensor inverse(const Tensor& y) const;
  [[nodiscard]] bool fitted() const;
  [[nodiscard]] ScaleReport report() const;

  Tensor& rows;      ///< i64 scalar: rows seen
  Tensor& count;     ///< i64 [features]: values that were there
  Tensor& data_min;  ///< [features]
  Tensor& data_max;

 protected:
  DataScale(const char* name, std::int64_t features);

  /// shift and scale of feature c from the buffers; scale 0 stands for none.
  struct Spread {
    double shift = 0;
    double scale = 1;
  };
  [[nodiscard]] virtual Spread spread(std::size_t c) const = 0;
  /// What [0, 1] or one unit of spread becomes: (low, high) -> gain high - low, offset low.
  [[nodiscard]] virtual std::array<double, 2> range() const { return {0, 1}; }
  [[nodiscard]] virtual bool keeps_values() const { return false; }
  /// What the buffers know, to go on from.
  [[nodiscard]] virtual detail::FeatureSummary summary() const;
  /// Writes the buffers.
  virtual void store(const detail::FeatureSummary& summary);

  void extend(const Tensor& batch);
  [[nodiscard]] std::string text(const std::string& options) const;

 private:
  [[nodiscard]] detail::FeatureSummary fresh() const;
  void commit(const detail::FeatureSummary& summary);
  [[nodiscard]] Tensor map(bool inverse) const;

  const char* name_;
  std::int64_t features_;
};

/// y = (x - min) / (max - min) * (high - low) + low: the fitted data fill the range.
/// A constant feature becomes low. The fit is the same bits however the data are cut into batches.
class MinMaxScale : public DataScale {
 public:
  struct Options {
    std::int64_t features = 0;
    double low = 0.0;
    double high = 1.0;
    bool clip = false;  ///< values beyond the fitted ones stop at low and high
  };
  /// Throws Error for features < 1 and unless low < high.
  explicit MinMaxScale(const Options& options);
  /// Goes on with one more batch.
  void partial_fit(const Tensor& batch) { extend(batch); }
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string describe() const override;

  const Options o;

 protected:
  [[nodiscard]] Spread spread(std::size_t c) const override;
  [[nodiscard]] std::array<double, 2> range() const override { return {o.low, o.high}; }
};

/// y = (x - mean) / std, std the root of the biased variance. A constant feature becomes 0.
/// How the data are cut into batches changes the statistics by rounding only: 1e-6 of the spread
/// for f32 batches, 1e-13 for f64 ones, or an ulp of the mean. [merge: Chan, Golub & LeVeque 1983]
class Standardize : public DataScale {
 public:
  struct Options {
    std::int64_t features = 0;
    bool with_mean = true;  ///< false: no shift
    bool with_std = true;   ///< false: no division
  };
  /// Throws Error for features < 1.
  explicit Standardize(const Options& options);
  /// Goes on with one more batch.
  void partial_fit(const Tensor& batch) { extend(batch); }
  [[nodiscard]] std::string describe() const override;

  const Options o;
  Tensor& mean;  ///< [features]
  Tensor& var;   ///< [features], biased

 protected:
  [[nodiscard]] Spread spread(std::size_t c) const override;
  [[nodiscard]] detail::FeatureSummary summary() const override;
  void store(const detail::FeatureSummary& summary) override;
};

/// y = (x - median) / (q_high - q_low): outliers move nothing. Quantiles are exact, linear between
/// neighbours. fit() holds every value, 8 bytes each, until it ends: 8 * rows * features bytes;
/// there is no partial fit. The same bits however the data are cut into batches.
class RobustScale : public DataScale {
 public:
  struct Options {
    std::int64_t features = 0;
    double low_quantile = 0.25;
    double high_quantile = 0.75;
    bool with_center = true;  ///< false: no shift
    bool with_scale = true;   ///< false: no division
  };
  /// Throws Error for features < 1 and unless 0 <= low < high <= 1.
  explicit RobustScale(const Options& options);
  [[nodiscard]] std::string describe() const override;

  const Options o;
  Tensor& center;  ///< [features]: median
  Tensor& scale;   ///< [features]: q_high - q_low

 protected:
  [[nodiscard]] Spread spread(std::size_t c) const override;
  [[nodiscard]] bool keeps_values() const override { return true; }
  void store(const detail::FeatureSummary& summary) override;
};

}  // namespace steady
