#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <steadygrad/core/anomaly.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/tape.hpp>

#include "tests/support/golden.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

const Shape Small{3, 5};
const Shape Large{301, 257};  // three chunks of work

OpRow unary_row(const char* name, Tensor (*f)(const Tensor&), double low = -2.0, double high = 2.0,
                std::vector<double> kinks = {}) {
  return {.name = name,
          .f = [f](Inputs in) { return f(in[0]); },
          .inputs = {real(Small, low, high).away_from(std::move(kinks))},
          .large = {real(Large, low, high)}};
}

const bool UnaryTable = register_ops(
    "Unary",
    {
        unary_row("neg", neg),
        unary_row("exp", exp),
        unary_row("log", log, 0.5, 3.0),
        unary_row("sqrt", sqrt, 0.5, 3.0),
        unary_row("rsqrt", rsqrt, 0.5, 3.0),
        unary_row("abs", abs, -2.0, 2.0, {0.0}),
        unary_row("square", square),
        unary_row("reciprocal", reciprocal, 0.5, 3.0),
        unary_row("tanh", tanh),
        unary_row("sigmoid", sigmoid),
        unary_row("relu", relu, -2.0, 2.0, {0.0}),
        unary_row("silu", silu),
        {.name = "swiglu",
         .f = [](Inputs in) { return swiglu(in[0], in[1]); },
         .inputs = {real({3, 4}), real({3, 4})},
         .large = {real({300, 257}), real({300, 257})}},
        unary_row("gelu_erf", [](const Tensor& x) { return gelu(x); }),
        unary_row("gelu_tanh", [](const Tensor& x) { return gelu(x, Gelu::Tanh); }),
        unary_row("leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.1); }, -2.0, 2.0,
                  {0.0}),
        unary_row("clamp", [](const Tensor& x) { return clamp(x, -1.0, 0.5); }, -2.0, 2.0,
                  {-1.0, 0.5}),
        unary_row("softplus", [](const Tensor& x) { return softplus(x); }),
        unary_row("softplus_with_threshold",
                  [](const Tensor& x) { return softplus(x, 20.0, 20.0); }, 0.0, 2.0, {1.0}),
        unary_row(
            "pow_of_number", [](const Tensor& x) { return pow(x, 1.7); }, 0.5, 2.0),
        unary_row("pow_of_two", [](const Tensor& x) { return pow(x, 2.0); }),
        unary_row("number_operands",
                  [](const Tensor& x) {
                    return 1.0 - (2.0 + x * 3.0 + (x - 0.5) / 0.25) * 0.1 - 2.0 / (x + 4.0);
                  }),
        // one leaf on several paths
        unary_row("reused", [](const Tensor& x) { return x * sum(x) + exp(x) - x * x; }),
    });

using BinaryFunction = Tensor (*)(const Tensor&, const Tensor&);

/// The row for equal shapes, and one per way to broadcast.
void add_rows(std::vector<OpRow>& rows, const std::string& name, BinaryFunction f, double low_a,
              double low_b) {
  struct Case {
    const char* suffix;
    Shape a, b;
  };
  const Shape wide{40, 3, 700};
  for (const auto& [suffix, a, b] :
       {Case{"", {3, 4}, {3, 4}}, Case{"_row", {3, 4}, {4}}, Case{"_column", {3, 1}, {3, 4}},
        Case{"_scalar", {}, {2, 2}}, Case{"_both", {3, 1, 2}, {4, 1}}}) {
    const Shape large_a = a == b ? wide : a.rank() == 3 ? Shape{40, 1, 700} : Shape{3, 1};
    const Shape large_b = a == b ? wide : a.rank() == 3 ? Shape{30, 1} : Shape{40, 1, 700};
    rows.push_back({.name = name + suffix,
                    .f = [f](Inputs in) { return f(in[0], in[1]); },
                    .inputs = {real(a, low_a, 2.0), real(b, low_b, 2.0)},
                    .large = {real(large_a, low_a, 2.0), real(large_b, low_b, 2.0)}});
  }
}

std::vector<OpRow> binary_rows() {
  std::vector<OpRow> rows;
  add_rows(rows, "add", add, -2.0, -2.0);
  add_rows(rows, "sub", sub, -2.0, -2.0);
  add_rows(rows, "mul", mul, -2.0, -2.0);
  add_rows(rows, "div", div, -2.0, 0.5);
  add_rows(rows, "pow", pow, 0.5, -2.0);
  for (const auto& [name, f] :
       {std::pair<const char*, BinaryFunction>{"maximum", maximum}, {"minimum", minimum}}) {
    // 1.37 and 0.73 apart on grids: no two elements are close to a tie
    rows.push_back({.name = name,
                    .f = [f = f](Inputs in) { return f(in[0], in[1]); },
                    .inputs = {real({3, 4}, -2.0, 2.0).without_near_ties(),
                               real({4}, -1.85, 2.15).without_near_ties()},
                    .large = {real({300, 257}), real({257})}});
  }
  rows.push_back({.name = "where",
                  .f = [](Inputs in) { return where(in[0], in[1], in[2]); },
                  .inputs = {integers({3, 4}, 0, 2), real({3, 1}), real({4})},
                  .large = {integers({300, 257}, 0, 2), real({300, 1}), real({257})}});
  rows.push_back({.name = "where_floating_condition",
                  .f = [](Inputs in) { return where(relu(in[0]), in[1], in[1] * in[1]); },
                  .inputs = {real({3, 4}).away_from({0.0}).constant(), real({3, 4})},
                  .large = {real({300, 257}).constant(), real({300, 257})}});
  return rows;
}

const bool BinaryTable = register_ops("Binary", binary_rows());

// --- reference values --------------------------------------------------------------------------

const Golden& ops() {
  static const Golden golden("ops.h5");
  return golden;
}

class UnaryGolden : public testing::TestWithParam<const char*> {};

Tensor call_unary(const std::string& op, const GoldenCase& c, const Tensor& x) {
  static const std::map<std::string, Tensor (*)(const Tensor&)> table = {
      {"abs", abs},
      {"exp", exp},
      {"log", log},
      {"neg", neg},
      {"relu", relu},
      {"rsqrt", rsqrt},
      {"sigmoid", sigmoid},
      {"silu", silu},
      {"sqrt", sqrt},
      {"square", square},
      {"tanh", tanh},
      {"reciprocal", reciprocal},
      {"gelu_erf", [](const Tensor& t) { return gelu(t); }},
      {"gelu_tanh", [](const Tensor& t) { return gelu(t, Gelu::Tanh); }},
  };
  const double inf = std::numeric_limits<double>::infinity();
  if (op == "clamp") {
    return clamp(x, c.attribute_double("min", -inf), c.attribute_double("max", inf));
  }
  if (op == "leaky_relu") return leaky_relu(x, c.attribute_double("negative_slope"));
  if (op == "softplus") {
    return softplus(x, c.attribute_double("beta"), c.attribute_double("threshold"));
  }
  if (op == "log_sigmoid") return -softplus(-x);
  if (op == "pow_scalar") return pow(x, c.attribute_double("exponent"));
  return table.at(op)(x);
}

TEST_P(UnaryGolden, ValuesAndGradients) {
  const std::string group = GetParam();
  for (const GoldenCase& c : ops().cases(group)) {
    expect_golden(c, [&](GoldenInputs& in) { return call_unary(group, c, in.at("x")); });
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, UnaryGolden,
                         testing::Values("abs", "clamp", "exp", "gelu_erf", "gelu_tanh",
                                         "leaky_relu", "log", "log_sigmoid", "neg", "pow_scalar",
                                         "reciprocal", "relu", "rsqrt", "sigmoid", "silu",
                                         "softplus", "sqrt", "square", "tanh"),
                         [](const auto& row) { return std::string(row.param); });

TEST(SwiGlu, HasTheBitsOfSiluAndProductForwardAndBackward) {
  for (const Dtype dtype : {Dtype::F32, Dtype::F64})
    for (const std::int64_t n : {std::int64_t{1}, std::int64_t{4099}, std::int64_t{70001}}) {
      const auto wave = [&](double frequency, double height) {
        Tensor t = Tensor::empty({n}, Dtype::F64);
        const std::span<double> values = t.mutable_data<double>();
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = height * std::sin(frequency * static_cast<double>(i) + 1);
        return t.detached_copy(dtype);
      };
      // The cotangent is the caller's, then one that nobody else has, then one of a y used twice;
      // then only one operand wants a gradient, and last the operands are one.
      for (int use = 0; use < 6; ++use) {
        const auto run = [&](auto&& f) {
          const Tensor gate = wave(1, 8).set_requires_grad(use != 3);
          const Tensor x = use == 5 ? gate : wave(1.7, 3).set_requires_grad(use != 4);
          Tape tape;
          const Tensor y = f(gate, x);
          const Tensor out = use == 0 ? y : use == 2 ? y * 0.5 + y : y * wave(0.7, 2);
          const Gradients g = tape.backward(std::vector{out}, std::vector{wave(0.3, 1)});
          std::vector<Tensor> result{y.detach()};
          if (use != 3) result.push_back(g[gate]);
          if (use != 4) result.push_back(g[x]);
          return result;
        };
        const auto fused = run([](const Tensor& g, const Tensor& x) { return swiglu(g, x); });
        const auto apart = run([](const Tensor& g, const Tensor& x) { return silu(g) * x; });
        ASSERT_EQ(fused.size(), apart.size());
        for (std::size_t i = 0; i < fused.size(); ++i)
          dispatch_float("test", dtype, [&]<FloatElement T>() {
            EXPECT_TRUE(std::ranges::equal(fused[i].data<T>(), apart[i].data<T>()))
                << n << ", use " << use << ", tensor " << i;
          });
      }
    }
}

TEST(SwiGlu, RefusesOperandsThatDoNotMatch) {
  const Tensor gate = Tensor::ones({3, 4});
  EXPECT_THROW((void)swiglu(gate, Tensor::ones({4})), ShapeError);
  EXPECT_THROW((void)swiglu(gate, Tensor::ones({3, 4}, Dtype::F64)), Error);
  EXPECT_THROW((void)swiglu(gate, Tensor()), Error);
}

class BinaryGolden : public testing::TestWithParam<const char*> {};

TEST_P(BinaryGolden, ValuesAndGradients) {
  static const std::map<std::string, BinaryFunction> table = {
      {"add", add}, {"sub", sub},         {"mul", mul},        {"div", div},
      {"pow", pow}, {"maximum", maximum}, {"minimum", minimum}};
  for (const GoldenCase& c : ops().cases(GetParam())) {
    expect_golden(c, [&](GoldenInputs& in) {
      if (c.has_attribute("exponent")) return pow(in.at("x"), c.attribute_double("exponent"));
      return table.at(GetParam())(in.at("a"), in.at("b"));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, BinaryGolden,
                         testing::Values("add", "sub", "mul", "div", "pow", "maximum", "minimum"),
                         [](const auto& row) { return std::string(row.param); });

TEST(WhereGolden, ValuesAndGradients) {
  for (const GoldenCase& c : ops().cases("where")) {
    expect_golden(c, [](GoldenInputs& in) { return where(in.at("cond"), in.at("a"), in.at("b")); });
  }
}

TEST(AutogradGolden, OneLeafOnThreePaths) {
  const GoldenCase c = ops().group("autograd/reused_leaf");
  expect_golden(c, [](GoldenInputs& in) {
    const Tensor& x = in.at("x");
    return x * sum(x) + exp(x) - x;
  });
}

// --- behaviour ---------------------------------------------------------------------------------

TEST(Elementwise, MixedDtypesAreRefusedWithBothTensors) {
  const Tensor a = Tensor::zeros({2, 3}, Dtype::F32);
  const Tensor b = Tensor::zeros({3}, Dtype::F64);
  EXPECT_THAT(message_of([&] { (void)(a * b); }),
              AllOf(HasSubstr("mul: "), HasSubstr("f32 [2, 3]"), HasSubstr("f64 [3]")));
  EXPECT_THAT(message_of([&] { (void)where(b, a, a); }),
              AllOf(HasSubstr("where: "), HasSubstr("f64 [3]")));
  EXPECT_THAT(message_of([&] { (void)exp(Tensor::zeros({2}, Dtype::I64)); }),
              AllOf(HasSubstr("exp: "), HasSubstr("i64 [2]")));
  EXPECT_THAT(message_of([&] { (void)add(a, Tensor()); }), HasSubstr("add: b must be defined"));
}

TEST(Elementwise, ShapesThatDoNotBroadcastAreRefusedBeforeAnythingIsAllocated) {
  const Tensor a = Tensor::zeros({2, 3});
  const Tensor b = Tensor::zeros({2});
  reset_peak_memory();
  const std::int64_t peak = memory_stats().peak;
  EXPECT_THAT(message_of([&] { (void)(a - b); }),
              AllOf(HasSubstr("sub: "), HasSubstr("[2, 3]"), HasSubstr("[2]")));
  EXPECT_THAT(message_of([&] { (void)where(b, a, a); }), HasSubstr("where: "));
  EXPECT_EQ(memory_stats().peak, peak);
}

TEST(Elementwise, OptionsAreValidated) {
  const Tensor x = Tensor::zeros({2});
  EXPECT_THROW((void)clamp(x, 1.0, 0.0), Error);
  EXPECT_THROW((void)clamp(x, std::nan(""), 0.0), Error);
  EXPECT_THROW((void)softplus(x, 0.0), Error);
}

TEST(Elementwise, NumberTakesTheDtypeOfTheTensor) {
  const Tensor x = Tensor::of({2}, {1.0, 2.0}, Dtype::F32);
  EXPECT_EQ((x + 0.1).dtype(), Dtype::F32);
  EXPECT_THAT((1.0 / x).data<float>(), ElementsAre(1.0F, 0.5F));
  EXPECT_THAT((3.0 - x).data<float>(), ElementsAre(2.0F, 1.0F));
}

TEST(Elementwise, NumberMakesNoTensor) {
  const Tensor x = Tensor::full({1000}, 0.5);
  reset_peak_memory();
  const std::int64_t before = memory_stats().live_blocks;
  const Tensor y = x * 3.0;
  EXPECT_EQ(memory_stats().live_blocks, before + 1);
}

TEST(Elementwise, SavesOnlyWhatTheGradientNeeds) {
  const Tensor x = Tensor::full({1000}, 0.5, Dtype::F64).set_requires_grad();
  const Tensor constant = Tensor::full({1000}, 0.25, Dtype::F64);
  const auto live_after = [&](const std::function<Tensor()>& make) {
    const std::int64_t before = memory_stats().live_blocks;
    Tape tape;
    (void)make();
    return memory_stats().live_blocks - before;
  };
  EXPECT_EQ(live_after([&] { return x + x; }), 0);
  EXPECT_EQ(live_after([&] { return x * (constant * constant); }), 1);  // the product
  EXPECT_EQ(live_after([&] { return (x + x) * constant; }), 0);         // not x + x
  EXPECT_EQ(live_after([&] { return exp(x); }), 1);                     // its result
  EXPECT_EQ(live_after([&] { return exp(constant); }), 0);
  EXPECT_EQ(live_after([&] { return relu(x + x); }), 1);  // y, not x + x
}

TEST(Elementwise, GradientOfAConstantOperandIsNotComputed) {
  // the gradient by b takes the logarithm of a: NaN here, and an error in anomaly mode
  const AnomalyMode anomaly;
  const Tensor a = Tensor::of({2}, {-2.0, 3.0}, Dtype::F64).set_requires_grad();
  Tensor b = Tensor::of({2}, {2.0, 2.0}, Dtype::F64);
  const auto gradient = [&] {
    Tape tape;
    return tape.backward(sum(pow(a, b)))[a];
  };
  EXPECT_THAT(gradient().data<double>(), ElementsAre(-4.0, 6.0));
  b.set_requires_grad();
  EXPECT_THAT(message_of([&] { (void)gradient(); }), HasSubstr("pow: backward"));
}

TEST(Elementwise, BackwardInPlaceSparesGradientsThatOthersHold) {
  const Tensor x = Tensor::of({2}, {0.5, -1.0}, Dtype::F64).set_requires_grad();
  const Tensor cotangent = Tensor::of({2}, {3.0, 5.0}, Dtype::F64);
  Tape tape;
  const Tensor doubled = x * 2.0;
  const Tensor y = neg(relu(doubled));
  Tensor seen;
  tape.on_gradient(doubled, [&](const Tensor& g) { seen = g; });
  const Gradients g = tape.backward(y, {.cotangent = cotangent});
  EXPECT_THAT(cotangent.data<double>(), ElementsAre(3.0, 5.0));
  EXPECT_THAT(seen.data<double>(), ElementsAre(-3.0, 0.0));
  EXPECT_THAT(g[x].data<double>(), ElementsAre(-6.0, 0.0));
}

TEST(Elementwise, ThirdDerivativeOfGeluIsRefusedByName) {
  const Tensor x = Tensor::of({1}, {0.3}, Dtype::F64).set_requires_grad();
  Tape tape;
  const Gradients first = tape.backward(gelu(x), {.record = true});
  const Gradients second = tape.backward(first[x], {.record = true});
  EXPECT_THAT(message_of([&] { (void)tape.backward(second[x]); }),
              HasSubstr("gelu_erf: there is no third derivative"));
}

TEST(Elementwise, ThirdDerivativeOfExpIsExp) {
  const Tensor x = Tensor::of({1}, {0.3}, Dtype::F64).set_requires_grad();
  Tape tape;
  const Gradients first = tape.backward(exp(x), {.record = true});
  const Gradients second = tape.backward(first[x], {.record = true});
  EXPECT_NEAR(tape.backward(second[x])[x].item(), std::exp(0.3), 1e-15);
}

TEST(Maximum, InfinitiesAndNaNKeepTheGradientFinite) {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor a = Tensor::of({4}, {inf, -inf, NAN, 1.0}, Dtype::F64).set_requires_grad();
  const Tensor b = Tensor::of({4}, {inf, 2.0, 0.0, NAN}, Dtype::F64).set_requires_grad();
  Tape tape;
  const Gradients g = tape.backward(sum(maximum(a, b)));
  EXPECT_THAT(g[a].data<double>(), ElementsAre(0.5, 0.0, 1.0, 0.0));
  EXPECT_THAT(g[b].data<double>(), ElementsAre(0.5, 1.0, 0.0, 1.0));
}

TEST(Where, SideNotChosenGetsExactlyZero) {
  const Tensor x = Tensor::of({2}, {0.0, 4.0}, Dtype::F64).set_requires_grad();
  const Tensor safe = Tensor::of({2}, {0.0, 1.0}, Dtype::F64);
  Tape tape;
  // the inner where keeps 1 / x finite on the side that the outer one does not choose
  const Tensor y = where(safe, 1.0 / where(safe, x, Tensor::scalar(1.0, Dtype::F64)), x * 0.0);
  EXPECT_THAT(tape.backward(sum(y))[x].data<double>(), ElementsAre(0.0, -1.0 / 16.0));
}

}  // namespace
}  // namespace steady
