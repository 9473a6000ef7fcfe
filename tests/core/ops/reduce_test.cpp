#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/core/tape.hpp>

#include "tests/support/golden.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace testing_support;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using Reduce = std::function<Tensor(const Tensor&)>;

OpRow reduce_row(const std::string& name, const Reduce& f) {
  return {.name = name,
          .f = [f](Inputs in) { return f(in[0]); },
          .inputs = {real({3, 4, 2}).without_near_ties()},
          .large = {real({70, 61, 33})}};
}

std::vector<OpRow> reduce_rows() {
  const auto all = [](const std::string& name, const Reduce& over_all,
                      const std::function<Tensor(const Tensor&, const Axes&, bool)>& f) {
    return std::vector<OpRow>{
        reduce_row(name, over_all),
        reduce_row(name + "_rows", [f](const Tensor& x) { return f(x, -1, false); }),
        reduce_row(name + "_columns",
                   [f](const Tensor& x) {
                     return f(x, {0, 1}, false);
                   }),
        reduce_row(name + "_middle_keepdim", [f](const Tensor& x) { return f(x, 1, true); }),
        reduce_row(name + "_outer",
                   [f](const Tensor& x) {
                     return f(x, {2, 0}, false);
                   }),
    };
  };
  std::vector<OpRow> rows;
  const auto append = [&](std::vector<OpRow> more) {
    rows.insert(rows.end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
  };
  append(all(
      "sum", [](const Tensor& x) { return sum(x); },
      [](const Tensor& x, const Axes& axes, bool keep) { return sum(x, axes, keep); }));
  append(all(
      "mean", [](const Tensor& x) { return mean(x); },
      [](const Tensor& x, const Axes& axes, bool keep) { return mean(x, axes, keep); }));
  append(all(
      "max", [](const Tensor& x) { return max(x); },
      [](const Tensor& x, const Axes& axes, bool keep) { return max(x, axes, keep); }));
  append(all(
      "var", [](const Tensor& x) { return var(x); },
      [](const Tensor& x, const Axes& axes, bool keep) {
        return var(x, axes, {.unbiased = !keep, .keepdim = keep});
      }));
  rows.push_back({.name = "sum_to",
                  .f =
                      [](Inputs in) {
                        return sum_to(in[0], {3, 1});
                      },
                  .inputs = {real({2, 3, 4})},
                  .large = {real({40, 3, 700})}});
  rows.push_back({.name = "broadcast_to",
                  .f =
                      [](Inputs in) {
                        return broadcast_to(in[0], {40, 3, 5});
                      },
                  .inputs = {real({3, 1})}});
  rows.push_back({.name = "broadcast_large",
                  .f =
                      [](Inputs in) {
                        return broadcast_to(in[0], {9, in[0].dim(0), 7});
                      },
                  .inputs = {real({2, 1})},
                  .large = {real({1500, 1})}});
  return rows;
}

const bool ReduceTable = register_ops("Reduce", reduce_rows());

// --- reference values --------------------------------------------------------------------------

std::vector<int> ints(const std::vector<std::int64_t>& values) {
  return {values.begin(), values.end()};
}

class ReduceGolden : public testing::TestWithParam<const char*> {};

TEST_P(ReduceGolden, ValuesAndGradients) {
  const std::string group = GetParam();
  for (const GoldenCase& c : Golden("ops.h5").cases(group)) {
    const std::vector<int> dims = ints(c.attribute_ints("dims"));
    const Axes axes{std::span<const int>(dims)};
    const bool keepdim = c.attribute_int("keepdim") != 0;
    const VarOptions options{.unbiased = c.attribute_int("unbiased", 1) != 0, .keepdim = keepdim};
    expect_golden(c, [&](GoldenInputs& in) {
      const Tensor& x = in.at("x");
      if (group == "sum") return sum(x, axes, keepdim);
      if (group == "mean") return mean(x, axes, keepdim);
      if (group == "amax") return max(x, axes, keepdim);
      const Tensor v = var(x, axes, options);
      return group.substr(0, 3) == "std" ? sqrt(v) : v;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, ReduceGolden,
                         testing::Values("sum", "mean", "amax", "var", "var_biased", "std",
                                         "std_biased"),
                         [](const auto& row) { return std::string(row.param); });

TEST(BroadcastGolden, ValuesAndGradients) {
  for (const GoldenCase& c : Golden("ops.h5").cases("expand")) {
    expect_golden(c, [&](GoldenInputs& in) {
      return broadcast_to(in.at("x"),
                          Shape(std::span<const std::int64_t>(c.attribute_ints("shape"))));
    });
  }
}

// --- behaviour ---------------------------------------------------------------------------------

TEST(Sum, OrderDependsOnTheShapeAlone) {  // CASES RT-01
  Tensor x = Tensor::empty({16});
  const auto values = x.mutable_data<float>();
  for (std::size_t i = 0; i < 16; ++i) values[i] = i % 2 == 1 ? 1.0F : i % 4 == 0 ? 1e8F : -1e8F;
  EXPECT_EQ(sum(x).item(), 8.0);  // in float32 one after the other it would be 1
  const int before = num_threads();
  const Tensor large = Tensor::full({1 << 18}, 0.1);
  set_num_threads(1);
  const double one = sum(large).item();
  for (const int threads : {2, 3, 8}) {
    set_num_threads(threads);
    EXPECT_EQ(sum(large).item(), one);
    EXPECT_EQ(sum(x).item(), 8.0);
  }
  set_num_threads(before);
}

TEST(Sum, OfNothingIsZeroAndItsGradientIsEmpty) {
  const Tensor x = Tensor::empty({0, 3}, Dtype::F64).set_requires_grad();
  Tape tape;
  const Tensor y = sum(x, 0);
  EXPECT_THAT(y.data<double>(), ElementsAre(0.0, 0.0, 0.0));
  EXPECT_EQ(tape.backward(sum(y))[x].shape(), (Shape{0, 3}));
}

TEST(Sum, OfAScalarIsItself) {
  EXPECT_EQ(sum(Tensor::scalar(3.5)).item(), 3.5);
  EXPECT_EQ(mean(Tensor::scalar(3.5)).item(), 3.5);
}

TEST(Reduce, EmptyInputsWithoutAnAnswerAreRefused) {
  const Tensor nothing = Tensor::empty({0, 3});
  EXPECT_THAT(message_of([&] { (void)mean(nothing); }), HasSubstr("mean: "));
  EXPECT_THAT(message_of([&] { (void)max(nothing, 0); }), HasSubstr("max: "));
  EXPECT_THAT(message_of([&] {
                (void)var(Tensor::ones({3, 1}), 1);
              }),
              AllOf(HasSubstr("var: "), HasSubstr("f32 [3, 1]")));
  EXPECT_THAT(var(Tensor::ones({3, 1}), 1, {.unbiased = false}).data<float>(), Each(0.0F));
}

TEST(Reduce, BadAxesAreRefusedByTheOperation) {
  const Tensor x = Tensor::ones({2, 3});
  EXPECT_THAT(message_of([&] {
                (void)sum(x, {0, -2});
              }),
              AllOf(HasSubstr("sum: axis -2 is named twice"), HasSubstr("[2, 3]")));
  EXPECT_THAT(message_of([&] { (void)mean(x, 2); }), HasSubstr("mean: "));
  EXPECT_THAT(message_of([&] { (void)max(x, Axes(std::span<const int>())); }),
              HasSubstr("max: needs at least one axis"));
  EXPECT_THAT(message_of([&] { (void)sum(Tensor::zeros({2}, Dtype::I32)); }), HasSubstr("sum: "));
}

TEST(Var, KeepsItsDigitsFarFromZero) {
  // mean 1e4, spread 1: E[x^2] - E[x]^2 in float32 would be off by more than 1
  Tensor x = Tensor::empty({1, 1024});
  const auto values = x.mutable_data<float>();
  for (std::size_t i = 0; i < 1024; ++i) values[i] = 1e4F + static_cast<float>(i % 5) - 2.0F;
  x.set_requires_grad();
  const Tensor exact = x.detached_copy(Dtype::F64).set_requires_grad();
  const auto run = [](const Tensor& t) {
    Tape tape;
    const Tensor y = var(t, 1);
    return std::pair(y.item(), tape.backward(y)[t]);
  };
  const auto single = run(x);
  const auto reference = run(exact);
  EXPECT_NEAR(single.first, reference.first, 1e-6 * reference.first);
  // the largest gradient is 4e-3; with the mean rounded to float32 the error would be 1e-6
  EXPECT_TRUE(close(single.second, reference.second, 2e-9));
}

TEST(BroadcastTo, RefusesOtherShapesByName) {
  const Tensor x = Tensor::ones({3, 2});
  EXPECT_THAT(message_of([&] { (void)broadcast_to(x, {2}); }), HasSubstr("broadcast_to: "));
  EXPECT_THAT(message_of([&] { (void)broadcast_to(x, {4, 2}); }), HasSubstr("[4, 2]"));
  EXPECT_THAT(message_of([&] { (void)sum_to(x, {3, 3}); }), HasSubstr("sum_to: "));
  EXPECT_THAT(message_of([&] { (void)sum_to(x, {1, 3, 2}); }), HasSubstr("sum_to: "));
}

TEST(Argmax, FirstLargestAlongAnyAxisAndNaNFirst) {
  const Tensor x = Tensor::of({2, 3}, {1, 5, 5, std::nan(""), 9, std::nan("")});
  EXPECT_THAT(argmax(x).data<std::int64_t>(), testing::ElementsAre(1, 0));
  EXPECT_THAT(argmax(x, 0).data<std::int64_t>(), testing::ElementsAre(1, 1, 1));
  EXPECT_THROW((void)argmax(Tensor::zeros({2, 0})), ShapeError);
  EXPECT_THROW((void)argmax(Tensor::zeros({2}), 1), ShapeError);
  EXPECT_THROW((void)argmax(Tensor::zeros({2}, Dtype::I64)), ShapeError);
}

TEST(Argmax, CountsCorrectRows) {
  const Tensor logits = Tensor::of({3, 2}, {1, 2, 4, 3, 0, 1});
  EXPECT_EQ(count_correct(logits, Tensor::of({3}, {1, 0, 0}, Dtype::I64)), 2);
  EXPECT_THROW((void)count_correct(logits, Tensor::of({2}, {1, 0}, Dtype::I64)), ShapeError);
  EXPECT_THROW((void)count_correct(logits, Tensor::of({3}, {1, 0, 0})), ShapeError);
}

}  // namespace
}  // namespace steady
