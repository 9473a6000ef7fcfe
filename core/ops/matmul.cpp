#include <steadygrad/core/ops/matmul.hpp>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/gemm.hpp>
#include <steadygrad/core/ops/check.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

/// C_i = op(A_i) op(B_i) for operands of rank 2 (one product) or rank 3 (a batch; an operand of
/// batch 1 serves every product). Both of one rank; op swaps the last two axes when asked.
Tensor product(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b);

/// Gradient of product by A, in A's own layout:
///   dop(A) = dC op(B)^T, and its transpose op(B) dC^T when A is stored transposed.
Tensor left_gradient(const Tensor& dc, const Tensor& b, bool transpose_a, bool transpose_b) {
  return transpose_a ? product(b, dc, transpose_b, true) : product(dc, b, false, !transpose_b);
}

/// Gradient of product by B: dop(B) = op(A)^T dC, transposed dC^T op(A).
Tensor right_gradient(const Tensor& dc, const Tensor& a, bool transpose_a, bool transpose_b) {
  return transpose_b ? product(dc, a, true, transpose_a) : product(a, dc, !transpose_a, false);
}

/// Adds up the gradient of an operand that served every product of a batch.
Tensor sum_batch(const Tensor& gradient, std::int64_t batch) {
  if (gradient.rank() == 2 || gradient.dim(0) == batch) return gradient;
  return sum(gradient, {0}, /*keepdim=*/true);
}

Tensor product(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b) {
  const int rank = a.rank();
  const kernels::GemmShape shape{.m = a.dim(transpose_a ? -1 : -2),
                                 .n = b.dim(transpose_b ? -2 : -1),
                                 .k = a.dim(transpose_a ? -2 : -1),
                                 .transpose_a = transpose_a,
                                 .transpose_b = transpose_b};
  const std::int64_t batch_a = rank == 3 ? a.dim(0) : 1;
  const std::int64_t batch_b = rank == 3 ? b.dim(0) : 1;
  const kernels::GemmBatch batch{.count = batch_a == 1 ? batch_b : batch_a,
                                 .a = batch_a == 1 ? 0 : shape.m * shape.k,
                                 .b = batch_b == 1 ? 0 : shape.k * shape.n,
                                 .c = shape.m * shape.n};
  Tensor c = Tensor::empty(
      rank == 3 ? Shape{batch.count, shape.m, shape.n} : Shape{shape.m, shape.n}, a.dtype());
  dispatch_float("matmul", a.dtype(), [&]<FloatElement T>() {
    kernels::gemm_batched<T>(shape, batch, T{1}, a.data<T>(), b.data<T>(), T{0},
                             c.mutable_data<T>("matmul"));
  });
  return record(
      "matmul", c, {a, b}, {needs_gradient(b) ? a : Tensor{}, needs_gradient(a) ? b : Tensor{}},
      [transpose_a, transpose_b, batch_a, batch_b](BackwardCall& call) {
        call.give(0, [&] {
          return sum_batch(left_gradient(call.grad(), call.saved(1), transpose_a, transpose_b),
                           batch_a);
        });
        call.give(1, [&] {
          return sum_batch(right_gradient(call.grad(), call.saved(0), transpose_a, transpose_b),
                           batch_b);
        });
      });
}

void check_matmul(const Tensor& a, const Tensor& b, const MatmulOptions& o) {
  detail::check_float("matmul", "a", a);
  check_defined("matmul", "b", b);
  check_same_dtype("matmul", a, b);
  STEADY_CHECK(ShapeError, a.rank() >= 1 && b.rank() >= 1,
               "matmul: needs vectors or matrices; got a {}, b {}", describe(a), describe(b));
  STEADY_CHECK(ShapeError, (a.rank() > 1 || !o.transpose_a) && (b.rank() > 1 || !o.transpose_b),
               "matmul: a vector cannot be transposed; got a {}, b {}", describe(a), describe(b));
  const std::int64_t inner_a = a.dim(o.transpose_a ? -2 : -1);
  const std::int64_t inner_b = b.dim(o.transpose_b || b.rank() == 1 ? -1 : -2);
  STEADY_CHECK(ShapeError, inner_a == inner_b,
               "matmul: inner extents must be equal; got a {}{}, b {}{}", describe(a),
               o.transpose_a ? " transposed" : "", describe(b), o.transpose_b ? " transposed" : "");
}

Shape batch_of(const Tensor& x) { return x.shape().slice(0, x.rank() - 2); }

/// x as [batch, rows, columns], batch that of `lead` or 1.
Tensor stacked(const Tensor& x, const Shape& lead) {
  const std::int64_t rows = x.dim(-2);
  const std::int64_t columns = x.dim(-1);
  const std::int64_t own = batch_of(x).numel();
  if (own == 1 || own == lead.numel()) return reshape(x, {own, rows, columns});
  return reshape(broadcast_to(x, lead.appended(rows).appended(columns)),
                 {lead.numel(), rows, columns});
}

/// Operands of rank 2 or more, already checked; y: [broadcast batch..., m, n].
Tensor matmul_matrices(const Tensor& a, const Tensor& b, const MatmulOptions& o) {
  if (a.rank() == 2 && b.rank() == 2) return product(a, b, o.transpose_a, o.transpose_b);
  const Shape lead = broadcast_shapes(batch_of(a), batch_of(b), "matmul");
  const std::int64_t m = a.dim(o.transpose_a ? -1 : -2);
  const std::int64_t n = b.dim(o.transpose_b ? -2 : -1);
  Tensor y;
  if (batch_of(b).numel() == 1 && !o.transpose_a) {
    // One matrix on the right: the rows of every a_i stack up to one tall product.
    y = product(reshape(a, {batch_of(a).numel() * m, a.dim(-1)}),
                reshape(b, {b.dim(-2), b.dim(-1)}), false, o.transpose_b);
  } else {
    y = product(stacked(a, lead), stacked(b, lead), o.transpose_a, o.transpose_b);
  }
  return reshape(y, lead.appended(m).appended(n));
}

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  detail::check_float("linear", "x", x);
  check_defined("linear", "weight", weight);
  check_same_dtype("linear", x, weight);
  STEADY_CHECK(ShapeError, x.rank() >= 1 && weight.rank() == 2 && x.dim(-1) == weight.dim(1),
               "linear: x [..., in] must fit weight [out, in]; got x {}, weight {}", describe(x),
               describe(weight));
  if (!bias.defined()) return;
  check_same_dtype("linear", x, bias);
  STEADY_CHECK(ShapeError, bias.rank() == 1 && bias.dim(0) == weight.dim(0),
               "linear: bias must be [out]; got bias {}, weight {}", describe(bias),
               describe(weight));
}

/// x: [rows, in].
Tensor linear_rows(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const kernels::GemmShape shape{
      .m = x.dim(0), .n = weight.dim(0), .k = x.dim(1), .transpose_b = true};
  Tensor y = Tensor::empty({shape.m, shape.n}, x.dtype());
  dispatch_float("linear", x.dtype(), [&]<FloatElement T>() {
    const std::span<T> out = y.mutable_data<T>("linear");
    if (bias.defined())
      kernels::gemm_bias<T>(shape, x.data<T>(), weight.data<T>(), bias.data<T>(), out);
    else
      kernels::gemm<T>(shape, T{1}, x.data<T>(), weight.data<T>(), T{0}, out);
  });
  return record(
      "linear", y, {x, weight, bias},
      {needs_gradient(weight) ? x : Tensor{}, needs_gradient(x) ? weight : Tensor{}},
      [](BackwardCall& call) {
        call.give(0, [&] { return left_gradient(call.grad(), call.saved(1), false, true); });
        call.give(1, [&] { return right_gradient(call.grad(), call.saved(0), false, true); });
        call.give(2, [&] { return sum(call.grad(), {0}); });
      });
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  check_matmul(a, b, options);
  const bool row = a.rank() == 1;
  const bool column = b.rank() == 1;
  if (!row && !column) return matmul_matrices(a, b, options);
  const Tensor y = matmul_matrices(row ? reshape(a, {1, a.dim(0)}) : a,
                                   column ? reshape(b, {b.dim(0), 1}) : b, options);
  Shape shape = y.shape();
  if (column) shape = shape.without(-1);
  if (row) shape = shape.without(column ? -1 : -2);
  return reshape(y, shape);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_linear(x, weight, bias);
  if (x.rank() == 2) return linear_rows(x, weight, bias);
  const Shape lead = x.shape().slice(0, x.rank() - 1);
  return reshape(linear_rows(reshape(x, {lead.numel(), x.dim(-1)}), weight, bias),
                 lead.appended(weight.dim(0)));
}

}  // namespace steady
