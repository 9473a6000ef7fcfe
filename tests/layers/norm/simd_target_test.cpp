#include <steadygrad/core/kernels/simd_target.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <steadygrad/version.hpp>
#include <string>
#include <vector>

#include "tests/core/kernels/kernel_test.hpp"
#include "tests/support/sanitizer.hpp"

namespace steady {
namespace {

// The tests of the kernels run on every target that this machine has (for_each_simd_target,
// on_every_target): here is what makes them mean something, and whole norms on top.

TEST(SimdTarget, EveryTargetCanBeChosen) {
  std::vector<std::string> names;
  test::for_each_simd_target([&] { names.emplace_back(simd_target()); });
  EXPECT_THAT(names, testing::Contains(std::string(simd_target())));
  if (test::under_address_sanitizer()) GTEST_SKIP() << "the library holds one target";
  EXPECT_EQ(names.size(), hwy::SupportedAndGeneratedTargets().size());
#if defined(__x86_64__)
  EXPECT_THAT(names, testing::Contains(std::string("SSE4")));
#endif
}

struct NormOnTargets : testing::TestWithParam<const char*> {};

// One rounding more where a target has no fused multiply and add, in sums of at most 512 terms.
TEST_P(NormOnTargets, GivesTheSameValuesAndGradients) {
  Tensor x = Tensor::empty({4, 8, 8, 16}).set_requires_grad();
  Random random(1, "x");
  for (float& v : x.mutable_data<float>()) v = static_cast<float>(random.normal() + 1);
  Tensor w = Tensor::empty(x.shape());
  for (float& v : w.mutable_data<float>()) v = static_cast<float>(random.normal());

  std::vector<std::vector<double>> results;
  test::for_each_simd_target([&] {
    const std::unique_ptr<Layer> norm = make_norm(NormSpec::parse(GetParam()), 16);
    Tape tape;
    const Tensor y = (*norm)(x);
    const Gradients gradients = tape.backward(sum(mul(y, w)));
    std::vector<double> all;
    for (const float v : y.data<float>()) all.push_back(v);
    for (const float v : gradients[x].data<float>()) all.push_back(v);
    results.push_back(all);
  });
  for (const std::vector<double>& other : results) {
    double worst = 0;
    for (std::size_t i = 0; i < other.size(); ++i) {
      worst = std::max(worst, std::abs(other[i] - results[0][i]));
    }
    EXPECT_LT(worst, 1e-5);
  }
}
INSTANTIATE_TEST_SUITE_P(Specs, NormOnTargets,
                         testing::Values("batch", "layer", "layer(over=sample)", "rms",
                                         "group(groups=4)", "instance", "prms(p=0.5)", "dyt", "frn",
                                         "lrn"));

}  // namespace
}  // namespace steady
