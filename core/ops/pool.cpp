#include <steadygrad/core/ops/pool.hpp>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/pooling.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

using kernels::Pool2dGeometry;

Shape x_shape(const Pool2dGeometry& g) { return {g.batch, g.height, g.width, g.channels}; }
Shape y_shape(const Pool2dGeometry& g) {
  return {g.batch, g.out_height(), g.out_width(), g.channels};
}

void check_image(const char* op, const Tensor& x) {
  check_defined(op, "x", x);
  STEADY_CHECK(ShapeError, x.rank() == 4 && is_float(x.dtype()),
               "{}: needs f32 or f64 [N, H, W, C]; got x {}", op, describe(x));
}

Pool2dGeometry checked_geometry(const char* op, const Tensor& x, const Pool2dOptions& options) {
  check_image(op, x);
  const bool given = options.stride[0] != 0 || options.stride[1] != 0;
  const Pool2dGeometry g{.batch = x.dim(0),
                         .height = x.dim(1),
                         .width = x.dim(2),
                         .channels = x.dim(3),
                         .kernel = options.kernel,
                         .stride = given ? options.stride : options.kernel,
                         .padding = options.padding,
                         .dilation = options.dilation,
                         .ceil_mode = options.ceil_mode};
  g.check(op);
  return g;
}

// Once the winners are known, max pooling is a gather, and its gradient the scatter back: each is
// the transpose, hence the derivative, of the other.

Tensor gather_winners(const Pool2dGeometry& g, const Tensor& x, const Tensor& index) {
  Tensor y = Tensor::empty(y_shape(g), x.dtype());
  dispatch_float("max_pool2d", x.dtype(), [&]<FloatElement T>() {
    kernels::max_pool2d_gather<T>(g, x.data<T>(), index.data<std::int32_t>(),
                                  y.mutable_data<T>("max_pool2d"));
  });
  return record("max_pool2d_gather", y, {x}, {index}, [g](BackwardCall& call) {
    call.give(0, [&] { return detail::max_pool2d_gradient(g, call.grad(), call.saved(0)); });
  });
}

Tensor spread_mean(const Pool2dGeometry& g, bool count_include_pad, const Tensor& dy);

Tensor window_mean(const Pool2dGeometry& g, bool count_include_pad, const Tensor& x) {
  Tensor y = Tensor::empty(y_shape(g), x.dtype());
  dispatch_float("avg_pool2d", x.dtype(), [&]<FloatElement T>() {
    kernels::avg_pool2d_forward<T>(g, count_include_pad, x.data<T>(),
                                   y.mutable_data<T>("avg_pool2d"));
  });
  return record("avg_pool2d", y, {x}, {}, [g, count_include_pad](BackwardCall& call) {
    call.give(0, [&] { return spread_mean(g, count_include_pad, call.grad()); });
  });
}

/// The transpose of window_mean.
Tensor spread_mean(const Pool2dGeometry& g, bool count_include_pad, const Tensor& dy) {
  Tensor dx = Tensor::empty(x_shape(g), dy.dtype());
  dispatch_float("avg_pool2d", dy.dtype(), [&]<FloatElement T>() {
    kernels::avg_pool2d_backward<T>(g, count_include_pad, dy.data<T>(),
                                    dx.mutable_data<T>("avg_pool2d backward"));
  });
  return record("avg_pool2d_gradient", dx, {dy}, {}, [g, count_include_pad](BackwardCall& call) {
    call.give(0, [&] { return window_mean(g, count_include_pad, call.grad()); });
  });
}

}  // namespace

Tensor detail::max_pool2d_gradient(const Pool2dGeometry& g, const Tensor& dy, const Tensor& index) {
  Tensor dx = Tensor::empty(x_shape(g), dy.dtype());
  dispatch_float("max_pool2d", dy.dtype(), [&]<FloatElement T>() {
    kernels::max_pool2d_backward<T>(g, dy.data<T>(), index.data<std::int32_t>(),
                                    dx.mutable_data<T>("max_pool2d backward"));
  });
  return record("max_pool2d_gradient", dx, {dy}, {index}, [g](BackwardCall& call) {
    call.give(0, [&] { return gather_winners(g, call.grad(), call.saved(0)); });
  });
}

Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options) {
  const Pool2dGeometry g = checked_geometry("max_pool2d", x, options);
  Tensor y = Tensor::empty(y_shape(g), x.dtype());
  Tensor index = Tensor::empty(y_shape(g), Dtype::I32);
  dispatch_float("max_pool2d", x.dtype(), [&]<FloatElement T>() {
    kernels::max_pool2d_forward<T>(g, x.data<T>(), y.mutable_data<T>("max_pool2d"),
                                   index.mutable_data<std::int32_t>("max_pool2d"));
  });
  return record("max_pool2d", y, {x}, {index}, [g](BackwardCall& call) {
    call.give(0, [&] { return detail::max_pool2d_gradient(g, call.grad(), call.saved(0)); });
  });
}

Tensor max_pool2d(const Tensor& x, std::int64_t kernel) {
  return max_pool2d(x, Pool2dOptions{.kernel = {kernel, kernel}});
}

Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options) {
  STEADY_CHECK(ShapeError, options.dilation[0] == 1 && options.dilation[1] == 1,
               "avg_pool2d: dilation must be 1; got {}, {}", options.dilation[0],
               options.dilation[1]);
  return window_mean(checked_geometry("avg_pool2d", x, options), options.count_include_pad, x);
}

Tensor avg_pool2d(const Tensor& x, std::int64_t kernel) {
  return avg_pool2d(x, Pool2dOptions{.kernel = {kernel, kernel}});
}

Tensor global_avg_pool2d(const Tensor& x) {
  check_image("global_avg_pool2d", x);
  STEADY_CHECK(ShapeError, x.dim(1) >= 1 && x.dim(2) >= 1,
               "global_avg_pool2d: needs at least one pixel; got x {}", describe(x));
  return mean(x, {1, 2});
}

}  // namespace steady
