#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/core/tensor.hpp>
#include <string_view>
#include <vector>

// What the experiments share: random tensors and data keyed by (seed, name), and sums in double.

namespace steady::examples::claims {

/// The seed of one of several draws of an experiment; no two seeds share one.
[[nodiscard]] std::uint64_t draw_seed(std::uint64_t seed, int draw);

struct NormalOptions {
  double stddev = 1;
  Dtype dtype = Dtype::F32;
};
/// Independent normal elements of mean 0.
[[nodiscard]] Tensor normal_tensor(const Shape& shape, std::uint64_t seed, std::string_view name,
                                   const NormalOptions& options = {});
/// Independent uniform integers in [0, classes), i64.
[[nodiscard]] Tensor random_labels(const Shape& shape, std::int64_t classes, std::uint64_t seed,
                                   std::string_view name);

/// Sum of the squares, in double.
[[nodiscard]] double squared_norm(const Tensor& x);
/// Mean of the squares.
[[nodiscard]] double second_moment(const Tensor& x);
/// Sum of the products, in double.
[[nodiscard]] double dot(const Tensor& a, const Tensor& b);
/// max |a - b| / max |b|
[[nodiscard]] double relative_difference(const Tensor& a, const Tensor& b);
/// Norm of each row of x, [..., features].
[[nodiscard]] std::vector<double> row_norms(const Tensor& x);

[[nodiscard]] double average(std::span<const double> values);
/// exp(mean(log))
[[nodiscard]] double geometric_mean(std::span<const double> values);
/// Slope of the least-squares line of log y over log x.
[[nodiscard]] double log_log_slope(std::span<const double> x, std::span<const double> y);

/// A classification problem: points around a random centre for each class.
struct ClusterOptions {
  std::int64_t samples = 4096;
  std::int64_t features = 32;
  std::int64_t classes = 10;
  double random_labels = 0;  ///< share of the labels that are drawn anew
  Dtype dtype = Dtype::F32;
};
struct Clusters {
  Tensor x;  ///< [samples, features]: centre (N(0, 1)) plus N(0, 1)
  Tensor y;  ///< [samples], i64
};
[[nodiscard]] Clusters make_clusters(const ClusterOptions& options, std::uint64_t seed);
/// Batch number `step`, with rows drawn at random.
[[nodiscard]] Clusters draw_batch(const Clusters& data, std::int64_t size, std::uint64_t seed,
                                  std::int64_t step);

}  // namespace steady::examples::claims
