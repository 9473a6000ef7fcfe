#include <steadygrad/core/ops/split.hpp>

#include <numeric>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/shaping.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

void check_split(const Tensor& x, std::span<const std::int64_t> extents) {
  check_defined("split", "x", x);
  STEADY_CHECK(ShapeError, x.rank() >= 1, "split: needs an axis; got x {}", describe(x));
  for (const std::int64_t extent : extents) {
    STEADY_CHECK(ShapeError, extent >= 0, "split: extents must not be negative; got {}", extent);
  }
  const std::int64_t total = std::accumulate(extents.begin(), extents.end(), std::int64_t{0});
  STEADY_CHECK(ShapeError, total == x.dim(-1),
               "split: extents must add up to the last axis; got a sum of {}, x {}", total,
               describe(x));
}

}  // namespace

std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> extents) {
  check_split(x, extents);
  const std::int64_t width = x.dim(-1);
  const std::int64_t rows = x.shape().numel(0, x.rank() - 1);
  const Shape lead = x.shape().slice(0, x.rank() - 1);
  std::vector<Tensor> parts;
  dispatch_all(x.dtype(), [&]<Element T>() {
    std::int64_t first = 0;
    for (const std::int64_t extent : extents) {
      Tensor part = Tensor::empty(lead.appended(extent), x.dtype());
      kernels::copy_columns<T>(x.data<T>(), width, first, part.mutable_data<T>("split"), extent, 0,
                               rows, extent);
      parts.push_back(std::move(part));
      first += extent;
    }
  });
  const Tensor sizes = Tensor::from<std::int64_t>({std::ssize(extents)}, extents);
  detail::record_closure(
      "split", std::span<Tensor>(parts), std::span<const Tensor>(&x, 1),
      std::span<const Tensor>(&sizes, 1), [lead, dtype = x.dtype()](BackwardCall& call) {
        call.give(0, [&] {
          std::vector<Tensor> gradients;
          for (const std::int64_t extent : call.saved(0).data<std::int64_t>()) {
            const Tensor& gradient = call.grad(static_cast<int>(gradients.size()));
            gradients.push_back(gradient.defined() ? gradient
                                                   : Tensor::zeros(lead.appended(extent), dtype));
          }
          return concat(gradients, -1);
        });
      });
  return parts;
}

std::vector<Tensor> split(const Tensor& x, std::initializer_list<std::int64_t> extents) {
  return split(x, std::span(extents.begin(), extents.size()));
}

}  // namespace steady
