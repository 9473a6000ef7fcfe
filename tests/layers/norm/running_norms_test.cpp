#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>

#include "tests/layers/norm/norm_testing.hpp"

// The rules of running statistics, which hold for every norm that keeps them.

namespace steady {
namespace {

using namespace norm_testing;
using testing::HasSubstr;

constexpr std::int64_t Features = 3;

class RunningNorm : public testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static std::unique_ptr<Layer> make() {
    std::unique_ptr<Layer> norm = make_norm(NormSpec::parse(GetParam()), Features);
    norm->to(Dtype::F64);
    return norm;
  }
  [[nodiscard]] static std::map<std::string, Tensor> state(const Layer& norm) {
    std::map<std::string, Tensor> copies;
    for (const NamedTensor& t : norm.state()) copies[t.name] = t.value.detached_copy();
    return copies;
  }
  static bool same(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
    if (a.size() != b.size()) return false;
    return std::ranges::all_of(
        a, [&](const auto& entry) { return same_bits(entry.second, b.at(entry.first)); });
  }

  const Tensor x = noise({4, 3, Features}, "x", 5, 2);
  const Tensor other = noise({4, 3, Features}, "other", -1, 1);
};

TEST_P(RunningNorm, ATrainingForwardMovesTheMeanByTheMomentum) {
  const auto norm = make();
  (void)(*norm)(x);
  const Tensor mean = state(*norm).at("running_mean");
  EXPECT_EQ(mean.shape(), Shape{Features});
  for (const double m : values(mean)) EXPECT_GT(m, 0.2);  // the batch's is near 5
}

TEST_P(RunningNorm, AForwardUnderNoStateUpdateChangesNoBuffer) {
  const auto norm = make();
  const auto before = state(*norm);
  const Tensor expected = (*make())(x);
  const NoStateUpdate probe;
  EXPECT_TRUE(same_bits((*norm)(x), expected));
  EXPECT_TRUE(same(state(*norm), before));
}

TEST_P(RunningNorm, EvalUsesTheBuffersAndChangesNone) {
  const auto norm = make();
  (void)(*norm)(x);
  const auto before = state(*norm);
  norm->eval();
  EXPECT_EQ(norm->statistics(), "frozen");
  // Every row by itself: what the others are does not matter.
  const Tensor all = (*norm)(x);
  Tensor swapped = x.detached_copy();
  for (std::size_t i = Features; i < swapped.data<double>().size(); ++i) {
    swapped.mutable_data<double>()[i] += 100;
  }
  const std::vector<double> a = values(all), b = values((*norm)(swapped));
  for (std::size_t c = 0; c < Features; ++c) EXPECT_EQ(a[c], b[c]);
  EXPECT_TRUE(same(state(*norm), before));
}

TEST_P(RunningNorm, EvalBackwardTreatsTheBuffersAsConstants) {
  const auto norm = make();
  (void)(*norm)(x);
  norm->eval();
  const Tensor leaf = x.detached_copy().set_requires_grad();
  Tensor dy = Tensor::zeros(x.shape(), Dtype::F64);
  dy.mutable_data<double>()[0] = 1;
  const Gradients g = gradients([&] { return (*norm)(leaf); }, dy);
  const std::vector<double> dx = values(g[leaf]);
  EXPECT_GT(dx[0], 0);
  for (std::size_t i = 1; i < dx.size(); ++i) EXPECT_EQ(dx[i], 0);
}

TEST_P(RunningNorm, FrozenStaysFrozenWhenAParentTrains) {
  const auto norm = make();
  EXPECT_EQ(norm->statistics(), "updating");
  norm->freeze();
  norm->train();
  const auto before = state(*norm);
  const Tensor y = (*norm)(x);
  EXPECT_TRUE(same(state(*norm), before));
  EXPECT_EQ(norm->statistics(), "frozen");
  norm->unfreeze();
  EXPECT_FALSE(same_bits((*norm)(x), y));
  EXPECT_FALSE(same(state(*norm), before));
}

TEST_P(RunningNorm, AnEmptyBatchChangesNothingAndGivesZeroGradients) {
  const auto norm = make();
  const auto before = state(*norm);
  for (const bool train : {true, false}) {
    norm->train(train);
    const Tensor none = Tensor::empty({0, 3, Features}, Dtype::F64).set_requires_grad();
    const Gradients g = gradients([&] { return (*norm)(none); }, none.detached_copy());
    EXPECT_EQ(g[none].shape(), none.shape());
    for (const Parameter& p : norm->parameters()) {
      for (const double v : values(g[p.value])) EXPECT_EQ(v, 0) << p.name;
    }
  }
  EXPECT_TRUE(same(state(*norm), before));
}

TEST_P(RunningNorm, ABatchThatIsNotFiniteThrowsAndChangesNoBuffer) {
  const auto norm = make();
  (void)(*norm)(x);
  const auto before = state(*norm);
  Tensor bad = x.detached_copy();
  bad.mutable_data<double>()[3 * 3 * Features + 1] = std::numeric_limits<double>::quiet_NaN();
  try {
    (void)(*norm)(bad);
    ADD_FAILURE() << "no error";
  } catch (const NonFiniteError& error) {
    EXPECT_THAT(error.what(), HasSubstr("channel 1"));
    EXPECT_THAT(error.what(), HasSubstr("no buffer was changed"));
  }
  EXPECT_TRUE(same(state(*norm), before));
}

TEST_P(RunningNorm, OneValuePerChannelIsRefusedInTrainingAlone) {
  const auto norm = make();
  const auto before = state(*norm);
  const Tensor one = noise({1, 1, Features}, "one");
  EXPECT_THROW((void)(*norm)(one), ShapeError);
  EXPECT_TRUE(same(state(*norm), before));
  norm->eval();
  EXPECT_NO_THROW((void)(*norm)(one));
}

TEST_P(RunningNorm, ItsStateGoesIntoAnotherNormOfItsKind) {
  const auto norm = make();
  (void)(*norm)(x);
  (void)(*norm)(other);
  const auto copy = make();
  EXPECT_TRUE(copy->load(norm->state()).clean());
  norm->eval();
  copy->eval();
  EXPECT_TRUE(same_bits((*copy)(x), (*norm)(x)));
  for (const auto& [name, value] : state(*norm)) {
    EXPECT_EQ(name == "num_batches_tracked", value.dtype() == Dtype::I64) << name;
  }
}

TEST_P(RunningNorm, SaysWhatMomentumMeans) {
  EXPECT_THAT(make()->describe(), HasSubstr("new batch weighs momentum=0.1"));
}

TEST_P(RunningNorm, AWrongShapeIsNamed) {
  const auto norm = make();
  try {
    (void)(*norm)(noise({4, 3, 2}, "x"));
    ADD_FAILURE() << "no error";
  } catch (const ShapeError& error) {
    EXPECT_THAT(error.what(), HasSubstr("[..., 3]"));
  }
}

std::string name_of(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return std::string_view("(=,. )").find(c) != std::string_view::npos; },
      '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Norms, RunningNorm,
                         testing::Values("batch", "instance(track=true)",
                                         "instance(track=true, affine=true)", "ghost(size=2)",
                                         "ghost(size=2, affine=false)", "mean_only",
                                         "mean_only(bias=false)", "renorm",
                                         "renorm(affine=false, rmax=1, dmax=0)"),
                         name_of);

}  // namespace
}  // namespace steady
