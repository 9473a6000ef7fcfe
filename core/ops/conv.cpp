#include <steadygrad/core/ops/conv.hpp>

#include <array>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/convolution.hpp>
#include <steadygrad/core/ops/check.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

using kernels::Conv2dGeometry;

// y = conv(x, w) + b is linear in each of its arguments, so the three operations below are closed
// under differentiation. With <., .> the inner product:
//   <y, dy>  = <conv(x, w), dy> = <input_gradient(dy, w), x> = <weight_gradient(x, dy), w>
// The derivative of each one by each argument is one of the other two.

Tensor convolve(const Conv2dGeometry& g, const Tensor& x, const Tensor& weight, const Tensor& bias);
Tensor input_gradient(const Conv2dGeometry& g, const Tensor& dy, const Tensor& weight);
/// {dweight, dbias}, dbias only when asked for.
std::array<Tensor, 2> weight_gradient(const Conv2dGeometry& g, const Tensor& x, const Tensor& dy,
                                      bool with_bias);

Shape x_shape(const Conv2dGeometry& g) { return {g.batch, g.height, g.width, g.in_channels}; }
Shape y_shape(const Conv2dGeometry& g) {
  return {g.batch, g.out_height(), g.out_width(), g.out_channels};
}
Shape weight_shape(const Conv2dGeometry& g) {
  return {g.out_channels, g.in_channels / g.groups, g.kernel[0], g.kernel[1]};
}

/// `saved` when the gradient of `other` will need it, so that nothing is kept alive for nothing.
Tensor keep_for(const Tensor& other, const Tensor& saved) {
  return needs_gradient(other) ? saved : Tensor{};
}

Tensor convolve(const Conv2dGeometry& g, const Tensor& x, const Tensor& weight,
                const Tensor& bias) {
  Tensor y = Tensor::empty(y_shape(g), x.dtype());
  dispatch_float("conv2d", x.dtype(), [&]<FloatElement T>() {
    kernels::conv2d_forward<T>(g, x.data<T>(), weight.data<T>(),
                               bias.defined() ? bias.data<T>() : std::span<const T>{},
                               y.mutable_data<T>("conv2d"));
  });
  return record("conv2d", y, {x, weight, bias}, {keep_for(weight, x), keep_for(x, weight)},
                [g](BackwardCall& call) {
                  const Tensor& dy = call.grad();
                  call.give(0, [&] { return input_gradient(g, dy, call.saved(1)); });
                  if (call.needs(1)) {
                    auto [dweight, dbias] = weight_gradient(g, call.saved(0), dy, call.needs(2));
                    call.give(1, dweight);
                    if (call.needs(2)) call.give(2, dbias);
                  } else {
                    call.give(2, [&] { return sum(dy, {0, 1, 2}); });
                  }
                });
}

Tensor input_gradient(const Conv2dGeometry& g, const Tensor& dy, const Tensor& weight) {
  Tensor dx = Tensor::empty(x_shape(g), dy.dtype());
  dispatch_float("conv2d", dy.dtype(), [&]<FloatElement T>() {
    kernels::conv2d_backward_input<T>(g, dy.data<T>(), weight.data<T>(),
                                      dx.mutable_data<T>("conv2d backward"));
  });
  return record("conv2d_input_gradient", dx, {dy, weight},
                {keep_for(weight, dy), keep_for(dy, weight)}, [g](BackwardCall& call) {
                  const Tensor& v = call.grad();  // in the place of x
                  call.give(0, [&] { return convolve(g, v, call.saved(1), {}); });
                  call.give(1, [&] { return weight_gradient(g, v, call.saved(0), false)[0]; });
                });
}

std::array<Tensor, 2> weight_gradient(const Conv2dGeometry& g, const Tensor& x, const Tensor& dy,
                                      bool with_bias) {
  Tensor dweight = Tensor::empty(weight_shape(g), x.dtype());
  Tensor dbias = with_bias ? Tensor::empty({g.out_channels}, x.dtype()) : Tensor{};
  dispatch_float("conv2d", x.dtype(), [&]<FloatElement T>() {
    kernels::conv2d_backward_weight<T>(
        g, x.data<T>(), dy.data<T>(), dweight.mutable_data<T>("conv2d backward"),
        with_bias ? dbias.mutable_data<T>("conv2d backward") : std::span<T>{});
  });
  return record("conv2d_weight_gradient", std::array{dweight, dbias}, {x, dy},
                {keep_for(dy, x), keep_for(x, dy)}, [g](BackwardCall& call) {
                  const Tensor& v = call.grad(0);       // in the place of the weight
                  const Tensor& v_bias = call.grad(1);  // in the place of the bias
                  if (v.defined()) {
                    call.give(0, [&] { return input_gradient(g, call.saved(1), v); });
                    call.give(1, [&] { return convolve(g, call.saved(0), v, v_bias); });
                  } else {
                    call.give(1, [&] { return broadcast_to(v_bias, y_shape(g)); });
                  }
                });
}

Conv2dGeometry checked_geometry(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                const Conv2dOptions& options) {
  detail::check_float("conv2d", "x", x);
  check_defined("conv2d", "weight", weight);
  check_same_dtype("conv2d", x, weight);
  STEADY_CHECK(
      ShapeError, x.rank() == 4 && weight.rank() == 4,
      "conv2d: needs x [N, H, W, C] and weight [K, C / groups, kh, kw]; got x {}, weight {}",
      describe(x), describe(weight));
  STEADY_CHECK(
      ShapeError, options.groups >= 1 && x.dim(3) == weight.dim(1) * options.groups,
      "conv2d: x [N, H, W, C] must fit weight [K, C / groups, kh, kw] (features last); got "
      "x {}, weight {}, groups {}",
      describe(x), describe(weight), options.groups);
  if (bias.defined()) {
    check_same_dtype("conv2d", x, bias);
    STEADY_CHECK(ShapeError, bias.shape() == Shape{weight.dim(0)},
                 "conv2d: bias must be [K]; got bias {}, weight {}", describe(bias),
                 describe(weight));
  }
  const Conv2dGeometry g{.batch = x.dim(0),
                         .height = x.dim(1),
                         .width = x.dim(2),
                         .in_channels = x.dim(3),
                         .out_channels = weight.dim(0),
                         .kernel = {weight.dim(2), weight.dim(3)},
                         .stride = options.stride,
                         .padding = options.padding,
                         .dilation = options.dilation,
                         .groups = options.groups};
  g.check();
  return g;
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options) {
  return convolve(checked_geometry(x, weight, bias, options), x, weight, bias);
}

}  // namespace steady
