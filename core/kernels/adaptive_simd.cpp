#include <cstdint>
#include <span>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/optimizer.hpp>
#include <steadygrad/core/parallel.hpp>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/adaptive_simd.cpp"
#include <hwy/foreach_target.h>

#include <steadygrad/core/kernels/simd-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace steady {
namespace HWY_NAMESPACE {
namespace {

using kernels::AdagradStep;
using kernels::AdamStep;
using kernels::RmsPropStep;

template <class T>
HWY_INLINE Vec<T> constant(double value) {
  return fill(static_cast<T>(value));
}

template <class T>
HWY_FLATTEN void adam(const AdamStep& s, T* p, T* m, T* v, T* largest, const T* g, std::int64_t n) {
  const auto beta1 = constant<T>(s.beta1), rest1 = constant<T>(1 - s.beta1);
  const auto beta2 = constant<T>(s.beta2), rest2 = constant<T>(1 - s.beta2);
  const auto eps = constant<T>(s.eps), root = constant<T>(s.root);
  const auto l2 = constant<T>(s.l2), keep = constant<T>(s.keep), size = constant<T>(s.size);
  const auto pass = [&](auto amsgrad) {
    for_vectors<T>(n, [&](std::int64_t i, auto part, int) {
      const auto old = load(p + i, part);
      const auto d = fma(l2, old, load(g + i, part));
      const auto first = fma(beta1, load(m + i, part), hn::Mul(rest1, d));
      auto second = fma(beta2, load(v + i, part), hn::Mul(rest2, hn::Mul(d, d)));
      store<T>(first, m + i, part);
      store<T>(second, v + i, part);
      if constexpr (decltype(amsgrad)::value) {
        second = hn::Max(load(largest + i, part), second);
        store<T>(second, largest + i, part);
      }
      const auto divisor = fma(root, hn::Sqrt(second), eps);
      const auto move = hn::Mul(size, hn::Div(first, divisor));
      store<T>(hn::Sub(hn::Mul(keep, old), move), p + i, part);
    });
  };
  largest == nullptr ? pass(std::false_type{}) : pass(std::true_type{});
}

template <class T>
HWY_FLATTEN void rmsprop(const RmsPropStep& s, T* p, T* v, T* mean, T* buf, const T* g,
                         std::int64_t n) {
  const auto alpha = constant<T>(s.alpha), rest = constant<T>(1 - s.alpha);
  const auto eps = constant<T>(s.eps), l2 = constant<T>(s.l2);
  const auto momentum = constant<T>(s.momentum), lr = constant<T>(s.lr);
  const auto pass = [&](auto centered, auto with_momentum) {
    for_vectors<T>(n, [&](std::int64_t i, auto part, int) {
      const auto old = load(p + i, part);
      const auto d = fma(l2, old, load(g + i, part));
      auto spread = fma(alpha, load(v + i, part), hn::Mul(rest, hn::Mul(d, d)));
      store<T>(spread, v + i, part);
      if constexpr (decltype(centered)::value) {
        const auto average = fma(alpha, load(mean + i, part), hn::Mul(rest, d));
        store<T>(average, mean + i, part);
        // Not Max: a NaN must stay.
        const auto difference = fnma(average, average, spread);
        spread = hn::IfThenZeroElse(hn::Lt(difference, fill(T(0))), difference);
      }
      auto move = hn::Div(d, hn::Add(hn::Sqrt(spread), eps));
      if constexpr (decltype(with_momentum)::value) {
        move = fma(momentum, load(buf + i, part), move);
        store<T>(move, buf + i, part);
      }
      store<T>(fnma(lr, move, old), p + i, part);
    });
  };
  const auto choose = [&](auto centered) {
    buf == nullptr ? pass(centered, std::false_type{}) : pass(centered, std::true_type{});
  };
  mean == nullptr ? choose(std::false_type{}) : choose(std::true_type{});
}

template <class T>
HWY_FLATTEN void adagrad(const AdagradStep& s, T* p, T* sum, const T* g, std::int64_t n) {
  const auto eps = constant<T>(s.eps), l2 = constant<T>(s.l2), lr = constant<T>(s.lr);
  for_vectors<T>(n, [&](std::int64_t i, auto part, int) {
    const auto old = load(p + i, part);
    const auto d = fma(l2, old, load(g + i, part));
    const auto total = fma(d, d, load(sum + i, part));
    store<T>(total, sum + i, part);
    const auto move = hn::Div(d, hn::Add(hn::Sqrt(total), eps));
    store<T>(fnma(lr, move, old), p + i, part);
  });
}

// HWY_EXPORT takes no templates.
void adam_f32(const AdamStep& s, float* p, float* m, float* v, float* largest, const float* g,
              std::int64_t n) {
  adam(s, p, m, v, largest, g, n);
}
void adam_f64(const AdamStep& s, double* p, double* m, double* v, double* largest, const double* g,
              std::int64_t n) {
  adam(s, p, m, v, largest, g, n);
}
void rmsprop_f32(const RmsPropStep& s, float* p, float* v, float* mean, float* buf, const float* g,
                 std::int64_t n) {
  rmsprop(s, p, v, mean, buf, g, n);
}
void rmsprop_f64(const RmsPropStep& s, double* p, double* v, double* mean, double* buf,
                 const double* g, std::int64_t n) {
  rmsprop(s, p, v, mean, buf, g, n);
}
void adagrad_f32(const AdagradStep& s, float* p, float* sum, const float* g, std::int64_t n) {
  adagrad(s, p, sum, g, n);
}
void adagrad_f64(const AdagradStep& s, double* p, double* sum, const double* g, std::int64_t n) {
  adagrad(s, p, sum, g, n);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace steady
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace steady {
namespace {
HWY_EXPORT(adam_f32);
HWY_EXPORT(adam_f64);
HWY_EXPORT(rmsprop_f32);
HWY_EXPORT(rmsprop_f64);
HWY_EXPORT(adagrad_f32);
HWY_EXPORT(adagrad_f64);

constexpr std::int64_t Chunk = 8192;  // 100 000 elements still split evenly over the threads

/// The part of an optional array that begins at `begin`; null when the array is absent.
template <class T>
T* at(std::span<T> array, std::int64_t begin) {
  return array.empty() ? nullptr : array.data() + begin;
}

template <class T>
void check_length(const char* op, const char* name, std::span<T> array, std::size_t want,
                  bool optional = false) {
  STEADY_CHECK(Error, array.size() == want || (optional && array.empty()),
               "{}: {} must have the length of p; got {} and {}", op, name, array.size(), want);
}

}  // namespace

namespace kernels {

template <class T>
void adam_update(const AdamStep& step, std::span<T> p, std::span<T> m, std::span<T> v,
                 std::span<T> largest, std::span<const T> g) {
  check_length("adam_update", "m", m, p.size());
  check_length("adam_update", "v", v, p.size());
  check_length("adam_update", "largest", largest, p.size(), true);
  check_length("adam_update", "g", g, p.size());
  parallel_for(std::ssize(p), Chunk, [&](std::int64_t begin, std::int64_t end) {
    const auto worker = [&] {
      if constexpr (std::is_same_v<T, float>) {
        return HWY_DYNAMIC_DISPATCH(adam_f32);
      } else {
        return HWY_DYNAMIC_DISPATCH(adam_f64);
      }
    }();
    worker(step, at(p, begin), at(m, begin), at(v, begin), at(largest, begin), at(g, begin),
           end - begin);
  });
}

template <class T>
void rmsprop_update(const RmsPropStep& step, std::span<T> p, std::span<T> v, std::span<T> mean,
                    std::span<T> buf, std::span<const T> g) {
  check_length("rmsprop_update", "v", v, p.size());
  check_length("rmsprop_update", "mean", mean, p.size(), true);
  check_length("rmsprop_update", "buf", buf, p.size(), true);
  check_length("rmsprop_update", "g", g, p.size());
  parallel_for(std::ssize(p), Chunk, [&](std::int64_t begin, std::int64_t end) {
    const auto worker = [&] {
      if constexpr (std::is_same_v<T, float>) {
        return HWY_DYNAMIC_DISPATCH(rmsprop_f32);
      } else {
        return HWY_DYNAMIC_DISPATCH(rmsprop_f64);
      }
    }();
    worker(step, at(p, begin), at(v, begin), at(mean, begin), at(buf, begin), at(g, begin),
           end - begin);
  });
}

template <class T>
void adagrad_update(const AdagradStep& step, std::span<T> p, std::span<T> sum,
                    std::span<const T> g) {
  check_length("adagrad_update", "sum", sum, p.size());
  check_length("adagrad_update", "g", g, p.size());
  parallel_for(std::ssize(p), Chunk, [&](std::int64_t begin, std::int64_t end) {
    const auto worker = [&] {
      if constexpr (std::is_same_v<T, float>) {
        return HWY_DYNAMIC_DISPATCH(adagrad_f32);
      } else {
        return HWY_DYNAMIC_DISPATCH(adagrad_f64);
      }
    }();
    worker(step, at(p, begin), at(sum, begin), at(g, begin), end - begin);
  });
}

template void adam_update(const AdamStep&, std::span<float>, std::span<float>, std::span<float>,
                          std::span<float>, std::span<const float>);
template void adam_update(const AdamStep&, std::span<double>, std::span<double>, std::span<double>,
                          std::span<double>, std::span<const double>);
template void rmsprop_update(const RmsPropStep&, std::span<float>, std::span<float>,
                             std::span<float>, std::span<float>, std::span<const float>);
template void rmsprop_update(const RmsPropStep&, std::span<double>, std::span<double>,
                             std::span<double>, std::span<double>, std::span<const double>);
template void adagrad_update(const AdagradStep&, std::span<float>, std::span<float>,
                             std::span<const float>);
template void adagrad_update(const AdagradStep&, std::span<double>, std::span<double>,
                             std::span<const double>);

}  // namespace kernels
}  // namespace steady
#endif
