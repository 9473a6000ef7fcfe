#include <steadygrad/core/ops/attention.hpp>

#include <cmath>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/attention.hpp>
#include <steadygrad/core/ops/attention_call.hpp>
#include <steadygrad/core/ops/check.hpp>
#include <steadygrad/core/tape.hpp>
#include <vector>

namespace steady {
namespace {

using detail::AttentionCall;

constexpr int PositionBits = 36;  // of a stream's word numbers; the call number is above them

void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  detail::check_float("attention", "q", q);
  check_defined("attention", "k", k);
  check_defined("attention", "v", v);
  check_same_dtype("attention", q, k);
  check_same_dtype("attention", q, v);
  STEADY_CHECK(ShapeError,
               q.rank() == 4 && k.rank() == 4 && k.shape() == v.shape() && q.dim(0) == k.dim(0) &&
                   q.dim(3) == k.dim(3) && q.dim(3) >= 1,
               "attention: needs q [B, Tq, H, d] and k, v [B, Tk, Hkv, d]; got q {}, k {}, v {}",
               describe(q), describe(k), describe(v));
  STEADY_CHECK(ShapeError, k.dim(2) >= 1 && q.dim(2) % k.dim(2) == 0,
               "attention: the {} heads of q must be a multiple of the {} heads of k; got q {}, k "
               "{}",
               q.dim(2), k.dim(2), describe(q), describe(k));
}

void check_options(const Tensor& q, const Tensor& k, const AttentionOptions& o) {
  STEADY_CHECK(ShapeError, o.keys >= 0 && o.keys <= k.dim(1),
               "attention: keys must be in 0 .. {}; got {}, k {}", k.dim(1), o.keys, describe(k));
  STEADY_CHECK(ShapeError,
               !o.mask.defined() ||
                   (!is_float(o.mask.dtype()) && o.mask.shape() == Shape{k.dim(0), k.dim(1)}),
               "attention: mask must be i32 or i64 [B, Tk] = [{}, {}]; got mask {}", k.dim(0),
               k.dim(1), describe(o.mask));
  STEADY_CHECK(Error, o.dropout >= 0 && o.dropout < 1,
               "attention: dropout must be in [0, 1); got {}", o.dropout);
  STEADY_CHECK(Error, o.scale >= 0 && std::isfinite(o.scale),
               "attention: scale must be finite and positive, or 0 for 1 / sqrt(d); got {}",
               o.scale);
  STEADY_CHECK(Error,
               o.dropout == 0 || (o.call < std::uint64_t{1} << (64 - PositionBits) &&
                                  Shape({q.dim(0), q.dim(1), q.dim(2), k.dim(1)}).numel() <=
                                      std::int64_t{1} << PositionBits),
               "attention: dropout needs call < 2^{} and at most 2^{} weights; got call {}, q {}, "
               "k {}",
               64 - PositionBits, PositionBits, o.call, describe(q), describe(k));
}

std::vector<std::uint8_t> kept_keys(const AttentionCall& c, const Tensor& mask) {
  if (!mask.defined()) return {};
  std::vector<std::uint8_t> keep;
  keep.reserve(static_cast<std::size_t>(c.batch * c.keys));
  const auto append = [&](const auto elements) {
    for (std::int64_t b = 0; b < c.batch; ++b) {
      for (std::int64_t j = 0; j < c.keys; ++j)
        keep.push_back(elements[static_cast<std::size_t>(b * c.capacity + j)] != 0);
    }
  };
  if (mask.dtype() == Dtype::I32) {
    append(mask.data<std::int32_t>());
  } else {
    append(mask.data<std::int64_t>());
  }
  return keep;
}

kernels::Attention kernel_call(const AttentionCall& c, const std::vector<std::uint8_t>& keep) {
  kernels::Attention a{.batch = c.batch,
                       .queries = c.queries,
                       .keys = c.keys,
                       .capacity = c.capacity,
                       .heads = c.heads,
                       .kv_heads = c.kv_heads,
                       .width = c.width,
                       .causal = c.causal,
                       .scale = c.scale,
                       .keep = keep};
  if (c.threshold != 0) {
    a.dropout = {.threshold = c.threshold,
                 .scale = c.keep_scale,
                 .words = [stream = c.stream, first_word = c.first_word](
                              std::uint64_t first, std::span<std::uint32_t> words) {
                   stream.words(first_word + first, words);
                 }};
  }
  return a;
}

/// The gradients by the blocks of the kernel.
void give_gradients(const AttentionCall& c, BackwardCall& call) {
  const Tensor& q = call.saved(0);
  const Tensor& k = call.saved(1);
  const Tensor& v = call.saved(2);
  const std::vector<std::uint8_t> keep = kept_keys(c, call.saved(3));
  const auto wanted = [&](int input, const Tensor& like) {
    return call.needs(input) ? Tensor::empty(like.shape(), like.dtype()) : Tensor{};
  };
  Tensor dq = wanted(0, q);
  Tensor dk = wanted(1, k);
  Tensor dv = wanted(2, v);
  dispatch_float("attention", q.dtype(), [&]<FloatElement T>() {
    const auto out = [](Tensor& t) {
      return t.defined() ? t.mutable_data<T>("attention backward") : std::span<T>{};
    };
    kernels::attention_backward<T>(kernel_call(c, keep), call.grad().data<T>(), q.data<T>(),
                                   k.data<T>(), v.data<T>(), call.saved(4).data<double>(), out(dq),
                                   out(dk), out(dv));
  });
  if (dq.defined()) call.give(0, dq);
  if (dk.defined()) call.give(1, dk);
  if (dv.defined()) call.give(2, dv);
}

}  // namespace

namespace detail {

AttentionCall check_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                              const AttentionOptions& o) {
  check_shapes(q, k, v);
  check_options(q, k, o);
  const double threshold = std::ldexp(o.dropout, 32);
  constexpr double Largest = std::numeric_limits<std::uint32_t>::max();
  return {.batch = q.dim(0),
          .queries = q.dim(1),
          .keys = o.keys != 0 ? o.keys : k.dim(1),
          .capacity = k.dim(1),
          .heads = q.dim(2),
          .kv_heads = k.dim(2),
          .width = q.dim(3),
          .causal = o.causal,
          .scale = o.scale != 0 ? o.scale : 1 / std::sqrt(static_cast<double>(q.dim(3))),
          .stream = Random(o.seed, o.stream),
          .first_word = o.call << PositionBits,
          .threshold = static_cast<std::uint32_t>(std::min(std::round(threshold), Largest)),
          .keep_scale = 1 / (1 - o.dropout)};
}

}  // namespace detail

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options) {
  const AttentionCall c = detail::check_attention(q, k, v, options);
  Tensor y = Tensor::empty(q.shape(), q.dtype());
  Tensor lse = Tensor::empty({c.batch, c.heads, c.queries}, Dtype::F64);
  const std::vector<std::uint8_t> keep = kept_keys(c, options.mask);
  dispatch_float("attention", q.dtype(), [&]<FloatElement T>() {
    kernels::attention_forward<T>(kernel_call(c, keep), q.data<T>(), k.data<T>(), v.data<T>(),
                                  y.mutable_data<T>("attention"),
                                  lse.mutable_data<double>("attention"));
  });
  return record("attention", y, {q, k, v}, {q, k, v, options.mask, lse}, [c](BackwardCall& call) {
    if (!recording()) {
      give_gradients(c, call);
      return;
    }
    const auto [dq, dk, dv] = detail::composed_backward(
        c, call.grad(), call.saved(0), call.saved(1), call.saved(2), call.saved(3));
    call.give(0, dq);
    call.give(1, dk);
    call.give(2, dv);
  });
}

}  // namespace steady
