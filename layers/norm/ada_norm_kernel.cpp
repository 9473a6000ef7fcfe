#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/ada_norm_kernel.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>

namespace steady {
namespace {

constexpr std::int64_t TaskElements = 1 << 14;

}  // namespace

template <class T>
void ada_scale(T c, T k, std::span<const T> y, std::span<T> z) {
  const std::int64_t n = std::ssize(y);
  detail::check_span("ada_scale", "z", z.size(), n, false);
  parallel_for(n, TaskElements, [&](std::int64_t begin, std::int64_t end) {
    const T* in = y.data();
    T* out = z.data();
    for (std::int64_t i = begin; i < end; ++i) out[i] = c * (T(1) - k * in[i]) * in[i];
  });
}

template <class T>
void ada_scale_backward(T c, T slope, std::span<const T> y, std::span<const T> dz,
                        std::span<T> dy) {
  const std::int64_t n = std::ssize(y);
  detail::check_span("ada_scale_backward", "dz", dz.size(), n, false);
  detail::check_span("ada_scale_backward", "dy", dy.size(), n, false);
  parallel_for(n, TaskElements, [&](std::int64_t begin, std::int64_t end) {
    const T *in = y.data(), *up = dz.data();
    T* out = dy.data();
    for (std::int64_t i = begin; i < end; ++i) out[i] = c * (T(1) - slope * in[i]) * up[i];
  });
}

template void ada_scale(float, float, std::span<const float>, std::span<float>);
template void ada_scale(double, double, std::span<const double>, std::span<double>);
template void ada_scale_backward(float, float, std::span<const float>, std::span<const float>,
                                 std::span<float>);
template void ada_scale_backward(double, double, std::span<const double>, std::span<const double>,
                                 std::span<double>);

}  // namespace steady
