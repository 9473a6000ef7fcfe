#include <gtest/gtest.h>

#include <cmath>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/data_parallel.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/probe_joined.hpp>

#include "tests/support/ranks.hpp"

namespace steady {
namespace {

using testing_support::on_ranks;

Tensor numbers(std::int64_t begin, std::int64_t rows) {
  Random random(9, "numbers");
  Tensor all = Tensor::empty({12, 5});
  for (float& v : all.mutable_data<float>()) v = static_cast<float>(random.normal());
  return Tensor::from({rows, 5}, all.data<float>().subspan(static_cast<std::size_t>(5 * begin),
                                                           static_cast<std::size_t>(5 * rows)));
}

void expect_near(const TensorStats& got, const TensorStats& want) {
  EXPECT_EQ(got.count, want.count);
  EXPECT_NEAR(got.mean, want.mean, 1e-14);
  EXPECT_NEAR(got.std, want.std, 1e-14);
  EXPECT_NEAR(got.rms, want.rms, 1e-14);
  EXPECT_EQ(got.max_abs, want.max_abs);
  EXPECT_NEAR(got.zeros, want.zeros, 1e-15);
  EXPECT_NEAR(got.non_finite, want.non_finite, 1e-15);
  EXPECT_EQ(got.histogram, want.histogram);
}

TEST(JoinedStats, AreThoseOfTheJoinedTensor) {
  Tensor whole = numbers(0, 12);
  whole.mutable_data<float>()[3] = 0;
  whole.mutable_data<float>()[40] = NAN;
  const auto part = [&](std::size_t begin, std::size_t n) {
    return tensor_stats(
        Tensor::from({static_cast<std::int64_t>(n)},
                     std::span<const float>(whole.data<float>()).subspan(begin, n)));
  };
  expect_near(merge(part(0, 23), part(23, 37)), tensor_stats(whole));
  expect_near(merge(part(0, 60), part(0, 0)), tensor_stats(whole));
  expect_near(merge(part(0, 0), part(0, 60)), tensor_stats(whole));
  const TensorStats bad = merge(part(40, 1), part(41, 2));  // one half has no finite element
  EXPECT_EQ(bad.mean, part(41, 2).mean);
  EXPECT_NEAR(bad.non_finite, 1.0 / 3, 1e-15);
}

TEST(JoinedProbe, SeesTheJoinedBatchOnRankZeroAlone) {
  const auto watch = [](const Tensor& x, std::int64_t samples, distributed::Communicator& ranks,
                        std::vector<ProbeStep>& steps) {
    Linear model({.in = 5, .out = 4});
    model.initialize(3);
    Probe probe(model, {.every = 1},
                join_probe([&](const ProbeStep& step) { steps.push_back(step); }, ranks));
    DataParallel parallel(model, ranks);
    Tape tape;
    const Tensor y = model(x);
    (void)parallel.average(tape.backward(y, {.cotangent = Tensor::ones(y.shape())}), samples);
    probe.finish();
  };
  std::vector<ProbeStep> want;
  distributed::SingleProcess alone;
  watch(numbers(0, 12), 12, alone, want);
  ASSERT_EQ(want.size(), 1U);
  on_ranks(2, [&](distributed::Communicator& ranks) {
    std::vector<ProbeStep> got;
    const std::int64_t begin = ranks.rank() == 0 ? 0 : 7;
    watch(numbers(begin, ranks.rank() == 0 ? 7 : 5), ranks.rank() == 0 ? 7 : 5, ranks, got);
    ASSERT_EQ(got.size(), ranks.rank() == 0 ? 1U : 0U);
    if (ranks.rank() != 0) return;
    for (const Observed what : {Observed::Input, Observed::Output, Observed::Parameter}) {
      const std::string path = what == Observed::Parameter ? "weight" : "";
      ASSERT_NE(want[0].find(path, what), nullptr);
      ASSERT_NE(got[0].find(path, what), nullptr);
      expect_near(got[0].find(path, what)->stats, want[0].find(path, what)->stats);
    }
  });
}

}  // namespace
}  // namespace steady
