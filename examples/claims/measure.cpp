#include "examples/claims/measure.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/random.hpp>

namespace steady::examples::claims {
namespace {

template <class Use>
auto with_values(const Tensor& x, Use&& use) {
  return x.dtype() == Dtype::F64 ? use(x.data<double>()) : use(x.data<float>());
}

}  // namespace

std::uint64_t draw_seed(std::uint64_t seed, int draw) {
  constexpr std::uint64_t Draws = 64;
  return seed * Draws + static_cast<std::uint64_t>(draw);
}

Tensor normal_tensor(const Shape& shape, std::uint64_t seed, std::string_view name,
                     const NormalOptions& options) {
  Tensor t = Tensor::empty(shape, options.dtype);
  Random random(seed, name);
  dispatch_float("normal_tensor", options.dtype, [&]<FloatElement T>() {
    for (T& v : t.mutable_data<T>()) v = static_cast<T>(options.stddev * random.normal());
  });
  return t;
}

Tensor random_labels(const Shape& shape, std::int64_t classes, std::uint64_t seed,
                     std::string_view name) {
  Tensor t = Tensor::empty(shape, Dtype::I64);
  Random random(seed, name);
  for (std::int64_t& label : t.mutable_data<std::int64_t>()) label = random.below(classes);
  return t;
}

double squared_norm(const Tensor& x) { return dot(x, x); }

double second_moment(const Tensor& x) { return squared_norm(x) / static_cast<double>(x.numel()); }

double dot(const Tensor& a, const Tensor& b) {
  return with_values(a, [&](auto left) {
    return with_values(b, [&](auto right) {
      double sum = 0;
      for (std::size_t i = 0; i < left.size(); ++i) sum += double(left[i]) * double(right[i]);
      return sum;
    });
  });
}

double relative_difference(const Tensor& a, const Tensor& b) {
  return with_values(a, [&](auto left) {
    return with_values(b, [&](auto right) {
      double difference = 0;
      double size = 0;
      for (std::size_t i = 0; i < left.size(); ++i) {
        difference = std::fmax(difference, std::abs(double(left[i]) - double(right[i])));
        size = std::fmax(size, std::abs(double(right[i])));
      }
      return difference / size;
    });
  });
}

std::vector<double> row_norms(const Tensor& x) {
  const auto width = static_cast<std::size_t>(x.dim(-1));
  return with_values(x, [&](auto values) {
    std::vector<double> norms(values.size() / width);
    for (std::size_t row = 0; row < norms.size(); ++row) {
      double sum = 0;
      for (const auto v : values.subspan(row * width, width)) sum += double(v) * double(v);
      norms[row] = std::sqrt(sum);
    }
    return norms;
  });
}

double average(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

double geometric_mean(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += std::log(v);
  return std::exp(sum / static_cast<double>(values.size()));
}

double log_log_slope(std::span<const double> x, std::span<const double> y) {
  const double mean_x = std::log(geometric_mean(x));
  const double mean_y = std::log(geometric_mean(y));
  double above = 0;
  double under = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double dx = std::log(x[i]) - mean_x;
    above += dx * (std::log(y[i]) - mean_y);
    under += dx * dx;
  }
  return above / under;
}

Clusters make_clusters(const ClusterOptions& o, std::uint64_t seed) {
  const Tensor centres =
      normal_tensor({o.classes, o.features}, seed, "clusters/centres", {.dtype = o.dtype});
  Clusters data{normal_tensor({o.samples, o.features}, seed, "clusters/noise", {.dtype = o.dtype}),
                random_labels({o.samples}, o.classes, seed, "clusters/classes")};
  Random random(seed, "clusters/labels");
  const auto labels = data.y.mutable_data<std::int64_t>();
  dispatch_float("make_clusters", o.dtype, [&]<FloatElement T>() {
    const auto x = data.x.mutable_data<T>();
    const auto centre = centres.data<T>();
    const auto width = static_cast<std::size_t>(o.features);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const std::size_t from = static_cast<std::size_t>(labels[i]) * width;
      for (std::size_t f = 0; f < width; ++f) x[i * width + f] += centre[from + f];
      if (random.uniform() < o.random_labels) labels[i] = random.below(o.classes);
    }
  });
  return data;
}

Clusters draw_batch(const Clusters& data, std::int64_t size, std::uint64_t seed,
                    std::int64_t step) {
  const Tensor rows =
      random_labels({size}, data.x.dim(0), seed, fmt::format("clusters/batch/{}", step));
  Tensor y = Tensor::empty({size}, Dtype::I64);
  const auto labels = data.y.data<std::int64_t>();
  std::ranges::transform(rows.data<std::int64_t>(), y.mutable_data<std::int64_t>().begin(),
                         [&](std::int64_t row) { return labels[static_cast<std::size_t>(row)]; });
  return {gather_rows(data.x, rows), y};
}

}  // namespace steady::examples::claims
