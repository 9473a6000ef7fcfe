#include <steadygrad/core/ops/dropout.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/check.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

constexpr int PositionBits = 36;  // of a stream's word numbers; the call number is above them

/// What a mask is made of again in every backward: element i is dropped where word first + i of the
/// stream is below the threshold p * 2^32.
struct Mask {
  Random stream;
  std::uint64_t first;
  std::uint32_t threshold;
  bool drops_all;  // p * 2^32 has rounded up to 2^32
  double scale;
};

template <class T>
void apply(const Mask& mask, std::span<const T> x, std::span<T> y) {
  constexpr std::int64_t Chunk = 16384;
  constexpr std::int64_t Block = 256;
  const T scale = static_cast<T>(mask.scale);
  if (mask.drops_all) {
    std::ranges::fill(y, T{0});
    return;
  }
  parallel_for(std::ssize(x), Chunk, [&](std::int64_t begin, std::int64_t end) {
    std::array<std::uint32_t, Block> words;
    for (std::int64_t at = begin; at < end; at += Block) {
      const auto first = static_cast<std::size_t>(at);
      const auto count = static_cast<std::size_t>(std::min(Block, end - at));
      mask.stream.words(mask.first + first, std::span(words).first(count));
      for (std::size_t i = 0; i < count; ++i) {
        y[first + i] = words[i] < mask.threshold ? T{0} : x[first + i] * scale;
      }
    }
  });
}

/// Linear in x, and its own transpose: the derivative of any order is the operation itself.
Tensor masked(const Mask& mask, const Tensor& x) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  dispatch_float("dropout", x.dtype(), [&]<FloatElement T>() {
    apply<T>(mask, x.data<T>(), y.mutable_data<T>("dropout"));
  });
  return record("dropout", y, {x}, {}, [mask](BackwardCall& call) {
    call.give(0, [&] { return masked(mask, call.grad()); });
  });
}

}  // namespace

Tensor dropout(const Tensor& x, double p, std::uint64_t seed, std::string_view stream,
               std::uint64_t call) {
  detail::check_float("dropout", "x", x);
  STEADY_CHECK(Error, p >= 0 && p <= 1, "dropout: p must be in [0, 1]; got {}", p);
  STEADY_CHECK(Error,
               call < std::uint64_t{1} << (64 - PositionBits) && x.numel() <= std::int64_t{1}
                                                                                  << PositionBits,
               "dropout: needs call < 2^{} and at most 2^{} elements; got call {}, x {}",
               64 - PositionBits, PositionBits, call, describe(x));
  if (p == 0) return x;
  const auto threshold = static_cast<std::uint64_t>(std::llround(std::ldexp(p, 32)));
  const Mask mask{.stream = Random(seed, stream),
                  .first = call << PositionBits,
                  .threshold = static_cast<std::uint32_t>(threshold),
                  .drops_all = threshold >> 32 != 0,
                  .scale = p < 1 ? 1 / (1 - p) : 0};
  return masked(mask, x);
}

}  // namespace steady
