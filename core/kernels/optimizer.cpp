#include <cstdint>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/optimizer.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady::kernels {
namespace {

constexpr std::int64_t Chunk = 8192;  // 100 000 elements still split evenly over the threads

/// The options in T. The loops take them by value: through a reference the stores to p could change
/// them, and the loops would not be vectorised.
template <class T>
struct Factors {
  T lr, momentum, damped, decay;
  explicit Factors(const SgdStep& s)
      : lr(static_cast<T>(s.lr)),
        momentum(static_cast<T>(s.momentum)),
        damped(static_cast<T>(1 - s.dampening)),
        decay(static_cast<T>(s.weight_decay)) {}
};

template <class T>
void plain(Factors<T> f, T* p, const T* g, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) p[i] -= f.lr * (g[i] + f.decay * p[i]);
}

/// On the first step the buffer is not read: it may hold anything.
template <bool First, bool Nesterov, class T>
void with_momentum(Factors<T> f, T* p, T* buf, const T* g, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T d = g[i] + f.decay * p[i];
    const T b = First ? d : f.momentum * buf[i] + f.damped * d;
    buf[i] = b;
    p[i] -= f.lr * (Nesterov ? d + f.momentum * b : b);
  }
}

}  // namespace

template <class T>
void sgd_update(const SgdStep& step, std::span<T> p, std::span<T> buf, std::span<const T> g) {
  const bool momentum = step.momentum != 0;
  STEADY_CHECK(Error, p.size() == g.size() && (!momentum || buf.size() == p.size()),
               "sgd_update: p, buf and g must have one size; got {}, {}, {}", p.size(), buf.size(),
               g.size());
  const Factors<T> f(step);
  parallel_for(std::ssize(p), Chunk, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t n = end - begin;
    T* const to = p.data() + begin;
    const T* const from = g.data() + begin;
    if (!momentum) return plain(f, to, from, n);
    T* const b = buf.data() + begin;
    if (step.first)
      step.nesterov ? with_momentum<true, true>(f, to, b, from, n)
                    : with_momentum<true, false>(f, to, b, from, n);
    else
      step.nesterov ? with_momentum<false, true>(f, to, b, from, n)
                    : with_momentum<false, false>(f, to, b, from, n);
  });
}

template void sgd_update(const SgdStep&, std::span<float>, std::span<float>,
                         std::span<const float>);
template void sgd_update(const SgdStep&, std::span<double>, std::span<double>,
                         std::span<const double>);

}  // namespace steady::kernels
