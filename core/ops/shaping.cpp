#include <steadygrad/core/ops/shaping.hpp>

#include <array>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/elementwise.hpp>
#include <steadygrad/core/kernels/shaping.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

/// Axis numbers as a plain value for closures.
struct Order {
  std::array<int, Shape::MaxRank> axes{};
  int rank = 0;
  [[nodiscard]] std::span<const int> span() const {
    return {axes.data(), static_cast<std::size_t>(rank)};
  }
};

Tensor permuted(const Tensor& x, const Order& order) {
  Shape shape;
  for (const int axis : order.span()) shape = shape.appended(x.dim(axis));
  Tensor y = Tensor::empty(shape, x.dtype());
  dispatch_all(x.dtype(), [&]<Element T>() {
    kernels::permute<T>(x.data<T>(), x.shape().extents(), order.span(),
                        y.mutable_data<T>("permute"));
  });
  Order inverse{.rank = order.rank};
  for (int k = 0; k < order.rank; ++k) {
    inverse.axes[static_cast<std::size_t>(order.axes[static_cast<std::size_t>(k)])] = k;
  }
  return record("permute", y, {x}, {}, [inverse](BackwardCall& call) {
    call.give(0, [&] { return permuted(call.grad(), inverse); });
  });
}

/// The part start, start + step, ... of an axis: x has shape `full`, the part shape `part`.
struct Part {
  Shape full{};
  Shape part{};
  kernels::Slice slice{};
};

Tensor put_back(const Tensor& part, const Part& p);

Tensor take(const Tensor& x, const Part& p) {
  Tensor y = Tensor::empty(p.part, x.dtype());
  dispatch_all(x.dtype(), [&]<Element T>() {
    kernels::slice<T>(x.data<T>(), p.slice, y.mutable_data<T>("slice"));
  });
  return record("slice", y, {x}, {}, [p](BackwardCall& call) {
    call.give(0, [&] { return put_back(call.grad(), p); });
  });
}

/// The part in its place among zeros: the adjoint of take.
Tensor put_back(const Tensor& part, const Part& p) {
  Tensor y = Tensor::empty(p.full, part.dtype());
  dispatch_all(part.dtype(), [&]<Element T>() {
    kernels::slice_backward<T>(part.data<T>(), p.slice, y.mutable_data<T>("slice"));
  });
  return record("slice", y, {part}, {},
                [p](BackwardCall& call) { call.give(0, [&] { return take(call.grad(), p); }); });
}

/// table[index[m], :] += rows[m, :] from zeros: the adjoint of gather_rows.
Tensor scatter_rows(const Tensor& rows, const Tensor& index, const Shape& table_shape) {
  Tensor table = Tensor::zeros(table_shape, rows.dtype());
  dispatch_float("gather_rows", rows.dtype(), [&]<FloatElement T>() {
    kernels::scatter_add_rows<T>(rows.data<T>(), table_shape[0], table_shape[1],
                                 index.data<std::int64_t>(), table.mutable_data<T>("gather_rows"));
  });
  return record("gather_rows", table, {rows}, {index}, [](BackwardCall& call) {
    call.give(0, [&] { return gather_rows(call.grad(), call.saved(0)); });
  });
}

/// Throws unless the parts can be joined along `axis` (counted from the front).
void check_parts(std::span<const Tensor> parts, int axis) {
  const Tensor& first = parts[0];
  for (const Tensor& part : parts) {
    check_defined("concat", "every part", part);
    check_same_dtype("concat", first, part);
    STEADY_CHECK(
        ShapeError,
        part.rank() == first.rank() && part.shape().with(axis, 0) == first.shape().with(axis, 0),
        "concat: parts may differ in axis {} only; got {}, {}", axis, describe(first),
        describe(part));
  }
}

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape) {
  check_defined("reshape", "x", x);
  return record("reshape", x.alias(shape), {x}, {}, [from = x.shape()](BackwardCall& call) {
    call.give(0, [&] { return reshape(call.grad(), from); });
  });
}

Tensor flatten(const Tensor& x, int first_axis) {
  check_defined("flatten", "x", x);
  if (x.rank() == 0) return reshape(x, {1});
  const int first = x.shape().axis(first_axis, "flatten");
  return reshape(x, x.shape().slice(0, first).appended(x.shape().numel(first, x.rank())));
}

Tensor permute(const Tensor& x, std::span<const int> axes) {
  check_defined("permute", "x", x);
  STEADY_CHECK(ShapeError, static_cast<int>(axes.size()) == x.rank(),
               "permute: needs {} axes for x {}; got {}", x.rank(), describe(x), axes.size());
  Order order{.rank = x.rank()};
  unsigned seen = 0;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    order.axes[k] = x.shape().axis(axes[k], "permute");
    STEADY_CHECK(ShapeError, (seen >> order.axes[k] & 1U) == 0,
                 "permute: axis {} is named twice; got x {}", axes[k], describe(x));
    seen |= 1U << order.axes[k];
  }
  return permuted(x, order);
}

Tensor permute(const Tensor& x, std::initializer_list<int> axes) {
  return permute(x, std::span(axes.begin(), axes.size()));
}

Tensor transpose(const Tensor& x, int a, int b) {
  check_defined("transpose", "x", x);
  Order order{.rank = x.rank()};
  for (int k = 0; k < x.rank(); ++k) order.axes[static_cast<std::size_t>(k)] = k;
  std::swap(order.axes[static_cast<std::size_t>(x.shape().axis(a, "transpose"))],
            order.axes[static_cast<std::size_t>(x.shape().axis(b, "transpose"))]);
  return permuted(x, order);
}

Tensor concat(std::span<const Tensor> parts, int axis) {
  STEADY_CHECK(ShapeError, !parts.empty(), "concat: needs at least one part; got none");
  check_defined("concat", "every part", parts[0]);
  const int along = parts[0].shape().axis(axis, "concat");
  check_parts(parts, along);
  Tensor extents = Tensor::empty({static_cast<std::int64_t>(parts.size())}, Dtype::I64);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    extents.mutable_data<std::int64_t>()[i] = parts[i].dim(along);
    total += parts[i].dim(along);
  }
  const Shape shape = parts[0].shape().with(along, total);
  const std::int64_t rows = shape.numel(0, along);
  const std::int64_t inner = shape.numel(along + 1, shape.rank());
  Tensor y = Tensor::empty(shape, parts[0].dtype());
  dispatch_all(y.dtype(), [&]<Element T>() {
    const auto out = y.mutable_data<T>("concat");
    std::int64_t first = 0;
    for (const Tensor& part : parts) {
      const std::int64_t width = part.dim(along) * inner;
      kernels::copy_columns<T>(part.data<T>(), width, 0, out, total * inner, first, rows, width);
      first += width;
    }
  });
  return record(
      "concat", y, parts, std::span<const Tensor>(&extents, 1), [along](BackwardCall& call) {
        std::int64_t start = 0;
        int i = 0;
        for (const std::int64_t extent : call.saved(0).data<std::int64_t>()) {
          call.give(i++, [&] { return slice(call.grad(), along, start, start + extent); });
          start += extent;
        }
      });
}

Tensor concat(std::initializer_list<Tensor> parts, int axis) {
  return concat(std::span(parts.begin(), parts.size()), axis);
}

Tensor slice(const Tensor& x, int axis, std::int64_t start, std::int64_t stop, std::int64_t step) {
  check_defined("slice", "x", x);
  const Shape& shape = x.shape();
  const int along = shape.axis(axis, "slice");
  const std::int64_t extent = shape[along];
  const std::int64_t first = start < 0 ? start + extent : start;
  const std::int64_t last = stop < 0 ? stop + extent : stop;
  STEADY_CHECK(ShapeError, 0 <= first && first <= last && last <= extent && step >= 1,
               "slice: needs 0 <= start <= stop <= {} and step >= 1; got x {}, axis {}, start {}, "
               "stop {}, step {}",
               extent, describe(x), axis, start, stop, step);
  const std::int64_t count = first == last ? 0 : (last - first - 1) / step + 1;
  return take(x, {.full = shape,
                  .part = shape.with(along, count),
                  .slice = {.outer = shape.numel(0, along),
                            .extent = extent,
                            .inner = shape.numel(along + 1, shape.rank()),
                            .start = first,
                            .step = step,
                            .count = count}});
}

Tensor gather_rows(const Tensor& table, const Tensor& index) {
  check_defined("gather_rows", "table", table);
  check_defined("gather_rows", "index", index);
  STEADY_CHECK(ShapeError, table.rank() == 2 && index.dtype() == Dtype::I64,
               "gather_rows: needs a table of rank 2 and an i64 index; got table {}, index {}",
               describe(table), describe(index));
  Tensor y = Tensor::empty(index.shape().appended(table.dim(1)), table.dtype());
  dispatch_all(table.dtype(), [&]<Element T>() {
    kernels::gather_rows<T>(table.data<T>(), table.dim(0), table.dim(1), index.data<std::int64_t>(),
                            y.mutable_data<T>("gather_rows"));
  });
  return record("gather_rows", y, {table}, {index}, [shape = table.shape()](BackwardCall& call) {
    call.give(0, [&] { return scatter_rows(call.grad(), call.saved(0), shape); });
  });
}

Tensor copy(const Tensor& x) {
  check_defined("copy", "x", x);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  dispatch_all(x.dtype(),
               [&]<Element T>() { kernels::copy<T>(x.data<T>(), y.mutable_data<T>("copy")); });
  return record("copy", y, {x}, {}, [](BackwardCall& call) { call.give(0, call.grad()); });
}

Tensor cast(const Tensor& x, Dtype dtype) {
  check_defined("cast", "x", x);
  if (x.dtype() == dtype) return copy(x);
  Tensor y = Tensor::empty(x.shape(), dtype);
  dispatch_all(x.dtype(), [&]<Element From>() {
    dispatch_all(dtype, [&]<Element To>() {
      if constexpr (!std::same_as<From, To>) {
        kernels::convert<From, To>(x.data<From>(), y.mutable_data<To>("cast"));
      }
    });
  });
  if (!is_float(x.dtype()) || !is_float(dtype)) return record("cast", y, {x}, {}, NoBackward{});
  return record("cast", y, {x}, {}, [from = x.dtype()](BackwardCall& call) {
    call.give(0, [&] { return cast(call.grad(), from); });
  });
}

}  // namespace steady
