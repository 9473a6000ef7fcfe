#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/expand.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady::kernels {
namespace {

constexpr std::int64_t Chunk = 32768;

void check_sizes(const char* op, const Broadcast& plan, std::size_t first, std::size_t second,
                 std::size_t result) {
  STEADY_CHECK(Error,
               plan.operands == 2 && plan.size[0] == static_cast<std::int64_t>(first) &&
                   plan.size[1] == static_cast<std::int64_t>(second) &&
                   plan.numel == static_cast<std::int64_t>(result),
               "{}: spans of {}, {} and {} elements do not fit a plan of {}, {} and {}", op, first,
               second, result, plan.size[0], plan.size[1], plan.numel);
}

template <class T>
T share(T a, T b) {
  const bool a_wins = a > b || (a != a && b == b);
  const bool b_wins = b > a || (b != b && a == a);
  return a_wins ? T(1) : b_wins ? T(0) : T(0.5);
}

}  // namespace

template <class T>
void expand(std::span<const T> x, Extents from, std::span<T> y, Extents to) {
  const Broadcast plan = make_broadcast({from, to}, "expand");
  check_sizes("expand", plan, x.size(), y.size(), y.size());
  const auto last = static_cast<std::size_t>(plan.rank - 1);
  parallel_for(plan.numel, Chunk, [&](std::int64_t begin, std::int64_t end) {
    for_each_row(plan, begin, end, [&](std::int64_t at, const auto& offset, std::int64_t count) {
      const T* in = x.data() + offset[0];
      if (plan.stride[0][last] != 0) {
        std::copy_n(in, count, y.data() + at);
      } else {
        std::fill_n(y.data() + at, count, *in);
      }
    });
  });
}

template <class T>
void larger_share(const Broadcast& plan, std::span<const T> a, std::span<const T> b,
                  std::span<T> w) {
  check_sizes("larger_share", plan, a.size(), b.size(), w.size());
  const auto last = static_cast<std::size_t>(plan.rank - 1);
  parallel_for(plan.numel, Chunk, [&](std::int64_t begin, std::int64_t end) {
    for_each_row(plan, begin, end, [&](std::int64_t at, const auto& offset, std::int64_t count) {
      const T* p = a.data() + offset[0];
      const T* q = b.data() + offset[1];
      const std::int64_t sp = plan.stride[0][last];
      const std::int64_t sq = plan.stride[1][last];
      for (std::int64_t i = 0; i < count; ++i)
        w[static_cast<std::size_t>(at + i)] = share(p[i * sp], q[i * sq]);
    });
  });
}

template void expand(std::span<const float>, Extents, std::span<float>, Extents);
template void expand(std::span<const double>, Extents, std::span<double>, Extents);
template void larger_share(const Broadcast&, std::span<const float>, std::span<const float>,
                           std::span<float>);
template void larger_share(const Broadcast&, std::span<const double>, std::span<const double>,
                           std::span<double>);

}  // namespace steady::kernels
