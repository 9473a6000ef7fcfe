#include <steadygrad/core/kernels/attention.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <string>
#include <vector>

#include "tests/core/kernels/kernel_test.hpp"

namespace steady::test {
namespace {

using kernels::Attention;
using testing::HasSubstr;

/// y, dq, dk and dv one after the other.
template <class T>
std::vector<T> run(const Attention& a) {
  const std::int64_t size = a.batch * a.queries * a.heads * a.width;
  const std::int64_t key_size = a.batch * a.capacity * a.kv_heads * a.width;
  // Of float32 precision in both types.
  const auto make = [](std::int64_t n, unsigned seed) {
    const std::vector<float> x = random_values<float>(n, seed);
    return std::vector<T>(x.begin(), x.end());
  };
  const std::vector<T> q = make(size, 1), dy = make(size, 2);
  const std::vector<T> k = make(key_size, 3), v = make(key_size, 4);
  std::vector<T> y = unwritten<T>(size), dq = y, dk = unwritten<T>(key_size), dv = dk;
  std::vector<double> lse = unwritten<double>(a.batch * a.heads * a.queries);
  kernels::attention_forward<T>(a, q, k, v, y, lse);
  kernels::attention_backward<T>(a, dy, q, k, v, lse, dq, dk, dv);
  for (const auto* part : {&dq, &dk, &dv}) y.insert(y.end(), part->begin(), part->end());
  return y;
}

Attention problem(std::int64_t queries, std::int64_t keys, std::int64_t width) {
  return {.batch = 2,
          .queries = queries,
          .keys = keys,
          .capacity = keys + 3,
          .heads = 4,
          .kv_heads = 2,
          .width = width,
          .causal = true,
          .scale = 0.3};
}

TEST(AttentionKernel, EverySimdTargetIsNearDouble) {
  for (const std::int64_t queries : {1, 2, 7, 66}) {
    for (const std::int64_t keys : {1, 5, 16, 40, 67}) {
      for (const std::int64_t width : {1, 7, 16, 33}) {
        SCOPED_TRACE(std::to_string(queries) + " queries, " + std::to_string(keys) + " keys, " +
                     std::to_string(width) + " wide");
        const Attention a = problem(queries, keys, width);
        const std::vector<double> want = run<double>(a);
        for_each_simd_target([&] { expect_near(run<float>(a), want, 2e-5); });
      }
    }
  }
}

TEST(AttentionKernel, BitsDoNotDependOnTheThreads) {
  Attention a = problem(150, 150, 8);
  a.dropout = {.threshold = 1U << 30, .scale = 4.0 / 3, .words = [](auto first, auto words) {
                 for (std::uint32_t& word : words)
                   word = static_cast<std::uint32_t>(first++ * 2654435761U);
               }};
  expect_thread_independent([&] { return run<float>(a); });
}

// Blocks of a head are shared out among chunks of work that begin in the middle of it.
TEST(AttentionKernel, ManyBlocksOfAHeadAreNearDouble) {
  Attention a = problem(400, 400, 64);
  a.batch = 1;
  a.heads = 3;
  a.kv_heads = 1;
  const std::vector<double> want = run<double>(a);
  expect_near(run<float>(a), want, 2e-5);
  expect_thread_independent([&] { return run<float>(a); });
}

TEST(AttentionKernel, BuffersMustFit) {
  const Attention a = problem(2, 3, 4);
  std::vector<float> q(64), k(96), y(64);
  std::vector<double> lse(16);
  kernels::attention_forward<float>(a, q, k, k, y, lse);
  const auto refused = [&](const Attention& other, std::span<const float> keys) {
    try {
      kernels::attention_forward<float>(other, q, keys, keys, y, lse);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no exception");
  };
  EXPECT_THAT(refused(a, in(k).first(95)), HasSubstr("95 in k"));
  Attention bad = a;
  bad.kv_heads = 3;
  EXPECT_THAT(refused(bad, k), HasSubstr("heads a multiple of kv_heads"));
  bad = a;
  bad.keys = 7;
  EXPECT_THAT(refused(bad, k), HasSubstr("keys within the capacity"));
}

}  // namespace
}  // namespace steady::test
