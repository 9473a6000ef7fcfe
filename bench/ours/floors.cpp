#include <steadygrad/core/parallel.hpp>

#include "bench/floors.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/ours/floors.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which fixes the target it is read for.
#include <hwy/cache_control.h>

#include <steadygrad/core/kernels/simd-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

template <bool kStream, class Value>
HWY_INLINE void write(float* out, std::int64_t n, const Value& value) {
  for_vectors<float>(n, [&](std::int64_t i, auto part, int) HWY_ATTR {
    if constexpr (kStream && std::is_same_v<decltype(part), Whole>) {
      hn::Stream(value(i, part), Tag<float>(), out + i);
    } else {
      store(value(i, part), out + i, part);
    }
  });
  if (kStream) hwy::FlushStream();
}

template <bool kStream>
HWY_FLATTEN void copy(const float* in, float* out, std::int64_t n) {
  write<kStream>(out, n,
                 [&](std::int64_t i, auto part) HWY_ATTR { return load<float>(in + i, part); });
}

template <bool kStream>
HWY_FLATTEN void triad(const float* a, const float* b, float* out, std::int64_t n) {
  write<kStream>(out, n, [&](std::int64_t i, auto part) HWY_ATTR {
    return fma(load<float>(b + i, part), fill(0.5F), load<float>(a + i, part));
  });
}

HWY_FLATTEN float sum(const float* in, std::int64_t n) {
  Sum<float> sum;
  for_vectors<float>(
      n, [&](std::int64_t i, auto part, int k) HWY_ATTR { sum.add(k, load<float>(in + i, part)); });
  return sum.total();
}

}  // namespace

float read_all(const float* in, std::int64_t n) { return sum(in, n); }
void copy_plain(const float* in, float* out, std::int64_t n) { copy<false>(in, out, n); }
void copy_stream(const float* in, float* out, std::int64_t n) { copy<true>(in, out, n); }
void triad_plain(const float* a, const float* b, float* out, std::int64_t n) {
  triad<false>(a, b, out, n);
}
void triad_stream(const float* a, const float* b, float* out, std::int64_t n) {
  triad<true>(a, b, out, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {
namespace {
HWY_EXPORT(read_all);
HWY_EXPORT(copy_plain);
HWY_EXPORT(copy_stream);
HWY_EXPORT(triad_plain);
HWY_EXPORT(triad_stream);

constexpr std::int64_t Chunk = 65536;  // that of the kernels
}  // namespace

namespace bench {

void floor_copy(const float* in, float* out, std::int64_t n, bool stream) {
  const auto run = stream ? HWY_DYNAMIC_DISPATCH(copy_stream) : HWY_DYNAMIC_DISPATCH(copy_plain);
  parallel_for(n, Chunk, [&](std::int64_t begin, std::int64_t end) {
    run(in + begin, out + begin, end - begin);
  });
}

void floor_triad(const float* a, const float* b, float* out, std::int64_t n, bool stream) {
  const auto run = stream ? HWY_DYNAMIC_DISPATCH(triad_stream) : HWY_DYNAMIC_DISPATCH(triad_plain);
  parallel_for(n, Chunk, [&](std::int64_t begin, std::int64_t end) {
    run(a + begin, b + begin, out + begin, end - begin);
  });
}

void floor_two_passes(const float* a, const float* b, float* out, std::int64_t n, bool stream) {
  const auto read = HWY_DYNAMIC_DISPATCH(read_all);
  const auto copy = stream ? HWY_DYNAMIC_DISPATCH(copy_stream) : HWY_DYNAMIC_DISPATCH(copy_plain);
  const auto triad =
      stream ? HWY_DYNAMIC_DISPATCH(triad_stream) : HWY_DYNAMIC_DISPATCH(triad_plain);
  parallel_for(n, Chunk, [&](std::int64_t begin, std::int64_t end) {
    read(a + begin, end - begin);
    if (b != nullptr) read(b + begin, end - begin);
  });
  const std::int64_t chunks = (n + Chunk - 1) / Chunk;
  parallel_for(chunks, 1, [&](std::int64_t chunk, std::int64_t) {
    const std::int64_t begin = (chunks - 1 - chunk) * Chunk;
    const std::int64_t count = std::min(Chunk, n - begin);
    if (b == nullptr) {
      copy(a + begin, out + begin, count);
    } else {
      triad(a + begin, b + begin, out + begin, count);
    }
  });
}

}  // namespace bench
}  // namespace steady
#endif
