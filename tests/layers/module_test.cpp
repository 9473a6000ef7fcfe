#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/module.hpp>
#include <steadygrad/layers/sequential.hpp>

namespace steady {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no exception";
}

/// A layer that passes its input on, with parameters of every kind.
struct Unit : Layer {
  struct Options {
    std::int64_t features = 2;
    bool bias = true;
    bool fail = false;
  };
  explicit Unit(Options options) : o(options) {}
  Options o;
  Tensor& weight =
      add_parameter("weight", {o.features, 3}, Role::Weight, kaiming_uniform_init(1.0));
  Tensor& bias = add_parameter("bias", {o.features}, Role::Bias, normal_init(0, 1), o.bias);
  Tensor& scale = add_parameter("scale", Tensor::ones({o.features}), Role::NormScale);
  Tensor& count = add_buffer("count", Tensor::zeros({}, Dtype::I64));

  Tensor forward(const Tensor& x) override {
    STEADY_CHECK(ShapeError, !o.fail, "unit: told to fail; got x {}", steady::describe(x));
    return x;
  }
  std::string describe() const override { return "Unit"; }
};

struct Block : Layer {
  struct Options {
    bool bias = true;
    bool fail = false;
  };
  explicit Block(Options options) : o(options) {}
  Options o;
  Unit& first = add<Unit>("first", {.features = 2, .bias = o.bias});
  Unit& second = add<Unit>("second", {.features = 4, .fail = o.fail});
  Tensor forward(const Tensor& x) override { return second(first(x)); }
  std::string describe() const override { return "Block"; }
};

std::vector<std::string> names(const State& state) {
  std::vector<std::string> result;
  for (const NamedTensor& t : state) result.push_back(t.name);
  return result;
}

TEST(Module, StateHasDottedNamesInOrderAndParametersOnlyLearnedOnes) {
  const Block block({.bias = false});
  EXPECT_THAT(names(block.state()),
              ElementsAre("first.weight", "first.scale", "first.count", "second.weight",
                          "second.bias", "second.scale", "second.count"));
  EXPECT_EQ(block.parameters().size(), 5U);
  EXPECT_EQ(block.parameter_count(), 6 + 2 + 12 + 4 + 4);
  EXPECT_EQ(block.second.path(), "second");
}

TEST(Module, RefusesNamesThatWouldCollide) {
  Sequential net;
  net.add<Unit>("a", {});
  EXPECT_THAT(message_of([&] { net.add<Unit>("a", {}); }), HasSubstr("'a' is taken in the model"));
  EXPECT_THROW(net.add<Unit>("a.b", {}), Error);
  EXPECT_THROW(net.add<Unit>("", {}), Error);
  EXPECT_EQ(net.children().size(), 1U);
}

TEST(Module, UninitializedParametersAreFoundByName) {
  Block block({});
  const Tensor x = Tensor::ones({1});
  EXPECT_THAT(message_of([&] { (void)block(x); }),
              AllOf(HasSubstr("in 'first'"), HasSubstr("'weight'"), HasSubstr("initialize")));
  block.initialize(1);
  EXPECT_NO_THROW((void)block(x));
}

TEST(Module, InitialValuesDependOnSeedAndPathAlone) {
  Block with({.bias = true});
  Block without({.bias = false});
  with.initialize(42);
  without.initialize(42);
  EXPECT_THAT(with.second.weight.data<float>(),
              testing::ElementsAreArray(without.second.weight.data<float>()));
  without.initialize(43);
  EXPECT_NE(with.second.weight.data<float>()[0], without.second.weight.data<float>()[0]);
}

TEST(Module, InitializeRestoresConstantsAndBuffers) {
  Block block({});
  block.first.scale.mutable_data<float>()[0] = 9;
  block.first.count.mutable_data<std::int64_t>()[0] = 7;
  block.initialize(1);
  EXPECT_EQ(block.first.scale.data<float>()[0], 1);
  EXPECT_EQ(block.first.count.item(), 0);
}

TEST(Module, LoadListsEverythingAtOnceAndChangesNothing) {  // CASES H5-11, H5-13
  Block block({});
  block.initialize(1);
  State state = block.state();
  for (NamedTensor& t : state) t.value = t.value.detached_copy();
  state[0].value = Tensor::zeros({2, 4});
  state[1].name = "first.bais";
  state[4].value = Tensor::full({4, 3}, 5.0);
  const float before = block.second.weight.data<float>()[0];
  EXPECT_THAT(message_of([&] { block.load(state); }),
              AllOf(HasSubstr("missing: first.bias"), HasSubstr("unexpected: first.bais"),
                    HasSubstr("first.weight: model f32 [2, 3], state f32 [2, 4]")));
  EXPECT_EQ(block.second.weight.data<float>()[0], before);
  const LoadReport report = block.load(state, {.strict = false});
  EXPECT_THAT(report.missing, ElementsAre("first.bias"));
  EXPECT_THAT(report.unexpected, ElementsAre("first.bais"));
  EXPECT_EQ(report.misfit.size(), 1U);
  EXPECT_EQ(block.second.weight.data<float>()[0], 5);
}

TEST(Module, LoadReplacesInitializeAndConvertsFloats) {
  Block source({});
  source.initialize(5);
  source.to(Dtype::F64);
  Block target({});
  EXPECT_TRUE(target.load(source.state()).clean());
  EXPECT_NO_THROW((void)target(Tensor::ones({1})));
  EXPECT_EQ(target.first.weight.dtype(), Dtype::F32);
  State wrong = source.state();
  for (NamedTensor& t : wrong) {
    if (t.name == "first.count") t.value = Tensor::zeros({}, Dtype::F32);
  }
  EXPECT_THAT(message_of([&] { target.load(wrong); }), HasSubstr("first.count"));
}

TEST(Module, FrozenSurvivesTheParentsTrain) {  // CASES BN-11
  Block block({});
  block.first.freeze();
  block.train();
  EXPECT_EQ(block.first.mode(), Mode::Frozen);
  EXPECT_FALSE(block.first.weight.requires_grad());
  EXPECT_TRUE(block.second.weight.requires_grad());
  block.eval();
  EXPECT_EQ(block.second.mode(), Mode::Eval);
  EXPECT_EQ(block.first.mode(), Mode::Frozen);
  block.first.unfreeze();
  EXPECT_EQ(block.first.mode(), Mode::Train);
  EXPECT_TRUE(block.first.weight.requires_grad());
}

TEST(Module, CloneIsEqualAndSharesNothing) {  // CASES AG-17
  Sequential net;
  net.add<Block>({.bias = false});
  net.add<Unit>("unit", {.features = 3});
  net.initialize(7);
  net.children()[1]->freeze();
  net.to(Dtype::F64);
  const auto copy = clone(net);
  const State a = net.state();
  const State b = copy->state();
  ASSERT_EQ(names(a), names(b));
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_FALSE(a[i].value.shares_storage_with(b[i].value)) << a[i].name;
    EXPECT_EQ(a[i].value.requires_grad(), b[i].value.requires_grad()) << a[i].name;
    if (a[i].value.dtype() == Dtype::F64) {
      EXPECT_THAT(a[i].value.data<double>(), testing::ElementsAreArray(b[i].value.data<double>()));
    }
  }
  EXPECT_EQ(copy->children()[1]->mode(), Mode::Frozen);
  EXPECT_NO_THROW((void)(*copy)(Tensor::ones({1})));
}

/// Two layers over one weight.
struct Tied : Layer {
  struct Options {};
  explicit Tied(Options options) : o(options) { second.weight = first.weight; }
  const Options o;
  Linear& first = add<Linear>("first", {.in = 3, .out = 3, .bias = false});
  Linear& second = add<Linear>("second", {.in = 3, .out = 3, .bias = false});
  Tensor forward(const Tensor& x) override { return second(first(x)); }
};

TEST(Module, ClonesKeepTies) {
  Tied tied({});
  tied.initialize(1);
  tied.to(Dtype::F64);
  const auto copy = clone(tied);
  EXPECT_EQ(copy->parameters().size(), 1U);
  EXPECT_TRUE(copy->second.weight.shares_storage_with(copy->first.weight));

  Sequential later;
  later.add<Linear>("a", {.in = 3, .out = 3, .bias = false});
  Linear& b = later.add<Linear>("b", {.in = 3, .out = 3, .bias = false});
  b.weight = find(later.state(), "a.weight");
  later.initialize(1);
  EXPECT_EQ(clone(later)->parameters().size(), 1U);
}

TEST(Module, ATiedTensorIsFilledOnceUnderItsFirstName) {
  Tied tied({});
  tied.initialize(1);
  Sequential alone;
  Linear& first = alone.add<Linear>("first", {.in = 3, .out = 3, .bias = false});
  alone.initialize(1);
  EXPECT_THAT(tied.second.weight.data<float>(),
              testing::ElementsAreArray(first.weight.data<float>()));
}

TEST(Module, ATiedTensorIsReadyWhenOneOfItsNamesWasLoaded) {
  Tied tied({});
  tied.load({{"first.weight", Tensor::ones({3, 3})}});
  EXPECT_EQ(tied(Tensor::ones({1, 3})).data<float>()[0], 9.0F);
}

TEST(Module, LoadNamesUndefinedTensorsAndTakesItsOwnNamesExchanged) {
  Sequential net;
  Linear& a = net.add<Linear>("a", {.in = 1, .out = 1, .bias = false});
  Linear& b = net.add<Linear>("b", {.in = 1, .out = 1, .bias = false});
  EXPECT_THAT(message_of([&] {
                net.load({{"a.weight", Tensor()}, {"b.weight", b.weight}});
              }),
              HasSubstr("a.weight: model f32 [1, 1], state undefined"));
  net.load({{"a.weight", Tensor::full({1, 1}, 2)}, {"b.weight", Tensor::full({1, 1}, 3)}});
  net.load({{"a.weight", b.weight}, {"b.weight", a.weight}});
  EXPECT_EQ(a.weight.item(), 3);
  EXPECT_EQ(b.weight.item(), 2);
}

TEST(Module, SummaryShowsPathsShapesRolesAndModes) {
  Block block({});
  block.initialize(1);
  block.first.freeze();
  const std::string text = block.summary();
  EXPECT_THAT(text, AllOf(HasSubstr("first"), HasSubstr("[4, 3]"), HasSubstr("norm scale"),
                          HasSubstr("frozen"), HasSubstr("buffer"),
                          HasSubstr("30 parameters, 20 trained")));
}

TEST(Layer, ErrorsCarryThePathAndTheirType) {
  Sequential net;
  net.add<Block>("block", {.fail = true});
  net.initialize(1);
  try {
    (void)net(Tensor::ones({2}));
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "in 'block.second': unit: told to fail; got x f32 [2]");
  }
}

/// Holds a layer that it did not register.
struct Hidden : Layer {
  struct Options {};
  explicit Hidden(Options options) : o(options) { inner.initialize(1); }
  Options o;
  Unit inner{{}};
  Tensor forward(const Tensor& x) override { return inner(x); }
};

TEST(Layer, UnregisteredLayersAreFoundOut) {  // CASES BN-22
  Hidden hidden({});
  EXPECT_THAT(message_of([&] { (void)hidden(Tensor::ones({1})); }), HasSubstr("not registered"));
}

}  // namespace
}  // namespace steady
