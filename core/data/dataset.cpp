#include <numeric>
#include <steadygrad/core/data/dataset.hpp>
#include <steadygrad/core/data/rows.hpp>
#include <steadygrad/core/error.hpp>
#include <vector>

namespace steady {

std::int64_t Dataset::size() const {
  STEADY_CHECK(ShapeError,
               x.defined() && y.defined() && x.rank() >= 1 && y.rank() >= 1 && x.dim(0) == y.dim(0),
               "dataset: x and y must have one row per sample; got x {}, y {}", describe(x),
               describe(y));
  return x.dim(0);
}

Dataset Dataset::first(std::int64_t n) const {
  STEADY_CHECK(ShapeError, n >= 1, "dataset: first(n) needs n >= 1; got {}", n);
  if (n >= size()) return *this;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return {copy_rows(x, rows), copy_rows(y, rows)};
}

}  // namespace steady
