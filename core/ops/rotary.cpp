#include <steadygrad/core/ops/rotary.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/rotary.hpp>
#include <steadygrad/core/ops/check.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

/// A rotation is orthogonal: its adjoint is its inverse.
Tensor rotated(const Tensor& x, const kernels::Rotary& r) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  dispatch_float("rotary", x.dtype(), [&]<FloatElement T>() {
    kernels::rotary<T>(r, x.data<T>(), y.mutable_data<T>("rotary"));
  });
  kernels::Rotary back = r;
  back.inverse = !r.inverse;
  return record("rotary", y, {x}, {}, [back](BackwardCall& call) {
    call.give(0, [&] { return rotated(call.grad(), back); });
  });
}

}  // namespace

Tensor rotary(const Tensor& x, const RotaryOptions& o) {
  detail::check_float("rotary", "x", x);
  STEADY_CHECK(ShapeError, x.rank() == 4, "rotary: needs x [B, T, H, d]; got x {}", describe(x));
  const std::int64_t dims = o.dims == 0 ? x.dim(3) : o.dims;
  STEADY_CHECK(ShapeError, dims >= 0 && dims % 2 == 0 && dims <= x.dim(3),
               "rotary: the rotated dims must be even and at most {}; got dims {}, x {}", x.dim(3),
               dims, describe(x));
  STEADY_CHECK(Error, o.theta > 0 && std::isfinite(o.theta) && o.offset >= 0,
               "rotary: needs a finite theta > 0 and an offset >= 0; got theta {}, offset {}",
               o.theta, o.offset);
  return rotated(x, {.batch = x.dim(0),
                     .tokens = x.dim(1),
                     .heads = x.dim(2),
                     .width = x.dim(3),
                     .dims = dims,
                     .offset = o.offset,
                     .theta = o.theta,
                     .interleaved = o.style == RotaryStyle::Interleaved});
}

}  // namespace steady
