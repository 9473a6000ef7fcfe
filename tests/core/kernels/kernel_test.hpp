#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <span>
#include <steadygrad/core/kernels/simd_target.hpp>
#include <steadygrad/core/parallel.hpp>
#include <string>
#include <vector>

namespace steady::test {

template <class T>
std::vector<T> random_values(std::int64_t n, unsigned seed, double low = -2, double high = 2) {
  std::mt19937_64 engine(seed);
  std::vector<T> x(static_cast<std::size_t>(n));
  for (T& v : x)
    v = static_cast<T>(low + (high - low) * static_cast<double>(engine() >> 11) * 0x1p-53);
  return x;
}

/// An output buffer in which an element that is never written shows.
template <class T>
std::vector<T> unwritten(std::int64_t n) {
  return std::vector<T>(static_cast<std::size_t>(n), std::numeric_limits<T>::quiet_NaN());
}

template <class T>
std::span<const T> in(const std::vector<T>& x) {
  return x;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Expects run() (a vector) to give the same bits with 1, 2, 3 and 8 threads.
template <class F>
void expect_thread_independent(F run) {
  const int before = num_threads();
  set_num_threads(1);
  const auto one = run();
  for (const int threads : {2, 3, 8}) {
    set_num_threads(threads);
    EXPECT_TRUE(same_bits(one, run())) << threads << " threads";
  }
  set_num_threads(before);
}

/// Calls body() with the kernels held to each SIMD target in turn that this machine and the library
/// have.
template <class F>
void for_each_simd_target(F body) {
  std::set<std::string> done;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    if (!done.insert(kernels::simd_target()).second) continue;
    SCOPED_TRACE(kernels::simd_target());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

template <class T>
void expect_near(const std::vector<T>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(static_cast<double>(got[i]), want[i], tolerance) << "element " << i;
}

}  // namespace steady::test
