#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/core/storage.hpp>
#include <steadygrad/layers/norm/norm_kinds.hpp>

#include "tests/layers/norm/norm_testing.hpp"
#include "tests/support/sanitizer.hpp"

// What holds for every norm that a spec can make, as a module in training.

namespace steady {
namespace {

using namespace norm_testing;

constexpr std::int64_t Features = 33;

class NormModule : public testing::TestWithParam<const char*> {
 protected:
  /// y, gradients and the whole state after `steps` training steps.
  [[nodiscard]] std::vector<Tensor> train(int steps) const {
    const std::unique_ptr<Layer> norm = make_norm(NormSpec::parse(GetParam()), Features);
    std::vector<Tensor> result;
    for (int i = 0; i < steps; ++i) {
      Tape tape;
      const Tensor y = (*norm)(x);
      const Gradients g = tape.backward(y, {.cotangent = dy});
      result = {y.detach()};
      for (const Gradients::Item& item : g.items()) result.push_back(item.gradient);
    }
    for (const NamedTensor& t : norm->state()) result.push_back(t.value);
    return result;
  }

  void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) const {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(same_bits(a[i], b[i])) << GetParam() << ", tensor " << i;
    }
  }

  const Tensor x =
      noise({8, 15, 15, Features}, "x", 2).detached_copy(Dtype::F32).set_requires_grad();
  const Tensor dy = noise({8, 15, 15, Features}, "dy").detached_copy(Dtype::F32);
};

TEST_P(NormModule, HasTheSameBitsForAnyNumberOfThreads) {
  const int before = num_threads();
  set_num_threads(1);
  const std::vector<Tensor> one = train(2);
  for (const int threads : {2, 3, 8}) {
    set_num_threads(threads);
    expect_same(one, train(2));
  }
  set_num_threads(before);
}

TEST_P(NormModule, WritesEveryElementItReads) {
  const std::vector<Tensor> plain = train(2);
  const PoisonMemory poison;
  expect_same(plain, train(2));
}

TEST_P(NormModule, MapsNoMemoryInSteadyStateAndLeavesNoneBehind) {
  (void)train(2);
  const MemoryStats before = memory_stats();
  (void)train(3);
  const MemoryStats after = memory_stats();
  if (!test::under_address_sanitizer()) {
    EXPECT_EQ(after.mapped, before.mapped);
  }
  EXPECT_EQ(after.live_blocks, before.live_blocks);
}

TEST_P(NormModule, LeavesItsInputAlone) {
  const Tensor copy = x.detached_copy();
  (void)train(1);
  EXPECT_TRUE(same_bits(x, copy));
}

std::string name_of(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return std::string_view("(=,. )").find(c) != std::string_view::npos; },
      '_');
  return name;
}

constexpr auto Specs = std::to_array<const char*>({
    "batch",
    "batch(affine=false)",
    "batch(track=false)",
    "batch(momentum=cumulative)",
    "layer",
    "layer(bias=false)",
    "layer(over=sample)",
    "rms",
    "rms(unit_offset=true)",
    "prms",
    "srms",
    "scale",
    "l2",
    "group(groups=3)",
    "group(groups=33, affine=false)",
    "dyt",
    "derf",
    "adanorm",
    "adanorm(detach=false)",
    "instance(affine=true, track=true)",
    "ghost(size=3)",
    "mean_only",
    "renorm",
    "frn(learn_eps=true)",
    "lrn",
    "none",
});
INSTANTIATE_TEST_SUITE_P(Specs, NormModule, testing::ValuesIn(Specs), name_of);

TEST(NormModuleSpecs, NameEveryNorm) {
  for (const detail::NormKind& kind : detail::norm_kinds()) {
    const std::string grammar = kind.grammar;
    const std::string name = grammar.substr(0, grammar.find('('));
    EXPECT_TRUE(std::ranges::any_of(
        Specs, [&](const char* spec) { return NormSpec::parse(spec).name() == name; }))
        << name << " is not among the specs above";
  }
}

}  // namespace
}  // namespace steady
