#include <cstdint>
#include <steadygrad/core/kernels/accumulate.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady::kernels {
namespace {

constexpr std::int64_t Chunk = 1 << 15;

}  // namespace

template <class T>
void accumulate(std::span<T> y, std::span<const T> x) {
  parallel_for(static_cast<std::int64_t>(y.size()), Chunk,
               [&](std::int64_t begin, std::int64_t end) {
                 T* out = y.data();
                 const T* in = x.data();
                 for (std::int64_t i = begin; i < end; ++i) out[i] += in[i];
               });
}

template <class T>
void multiply(std::span<T> y, T factor) {
  parallel_for(static_cast<std::int64_t>(y.size()), Chunk,
               [&](std::int64_t begin, std::int64_t end) {
                 T* out = y.data();
                 for (std::int64_t i = begin; i < end; ++i) out[i] *= factor;
               });
}

template void accumulate(std::span<float>, std::span<const float>);
template void accumulate(std::span<double>, std::span<const double>);
template void multiply(std::span<float>, float);
template void multiply(std::span<double>, double);

}  // namespace steady::kernels
