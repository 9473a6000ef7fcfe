#include "tests/support/op_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/core/tape.hpp>

// The table must be able to fail: one operation per kind of fault, each found.

namespace steady::testing_support {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

/// y = x^2 with a backward of the test's choice.
template <class Backward>
Tensor squared(const Tensor& x, const Backward& backward) {
  const Tensor y = square(x).detached_copy();
  return record("squared", y, {x}, {x}, backward);
}

std::vector<std::string> faults_of(const TensorFunction& f) {
  return op_faults({.name = "squared", .f = f, .inputs = {real({2, 3})}});
}

TEST(OpTable, AcceptsARightOperation) {
  EXPECT_THAT(faults_of([](Inputs in) {
                return squared(in[0], [](BackwardCall& call) {
                  call.give(0, [&] { return call.grad() * call.saved(0) * 2.0; });
                });
              }),
              IsEmpty());
}

TEST(OpTable, FindsAGradientThatIsOffByAThousandth) {
  const auto faults = faults_of([](Inputs in) {
    return squared(in[0], [](BackwardCall& call) {
      call.give(0, [&] { return call.grad() * call.saved(0) * 2.002; });
    });
  });
  EXPECT_THAT(faults, Contains(HasSubstr("gradient: input 0")));
}

TEST(OpTable, FindsAWrongSecondDerivativeBehindARightFirstOne) {
  const auto faults = faults_of([](Inputs in) {
    return squared(in[0], [](BackwardCall& call) {
      call.give(0, [&] { return call.grad() * call.saved(0).detach() * 2.0; });
    });
  });
  EXPECT_THAT(faults, testing::ElementsAre(HasSubstr("second derivative: input")));
}

TEST(OpTable, FindsASecondDerivativeThatShouldHaveBeenRefused) {
  const OpRow row{.name = "square",
                  .f = [](Inputs in) { return square(in[0]); },
                  .inputs = {real({2})},
                  .refuses_second = "square"};
  EXPECT_THAT(op_faults(row), Contains(HasSubstr("the row says that it is refused")));
}

TEST(OpTable, WantsARefusalThatNamesTheOperation) {
  OpRow row{.name = "squared",
            .f =
                [](Inputs in) {
                  return squared(in[0], [](BackwardCall& call) {
                    const Tensor dx = (call.grad() * call.saved(0) * 2.0).detach();
                    call.give(0, record("squared", dx.detached_copy(), {call.grad(), call.saved(0)},
                                        {}, NoBackward{}));
                  });
                },
            .inputs = {real({2})},
            .refuses_second = "squared"};
  EXPECT_THAT(op_faults(row), IsEmpty());
  row.refuses_second = "another name";
  EXPECT_THAT(op_faults(row), Contains(HasSubstr("does not name 'another name'")));
}

TEST(OpTable, FindsAnOperationThatForgetsToRecord) {
  const auto faults = faults_of([](Inputs in) { return square(in[0]).detached_copy(); });
  EXPECT_THAT(faults, Contains(HasSubstr("not on this tape")));
}

TEST(OpTable, FindsAGradientThatIsMissingForOneInput) {
  const auto faults = op_faults({.name = "product",
                                 .f = [](Inputs in) { return in[0] * in[1].detach(); },
                                 .inputs = {real({2, 3}), real({2, 3})}});
  EXPECT_THAT(faults, Contains(HasSubstr("gradient 1 is missing")));
}

TEST(OpTable, FindsAnInputThatIsWrittenTo) {
  const auto faults = faults_of([](Inputs in) {
    const Tensor y = square(in[0]);
    if (!recording()) return y;
    Tensor x = in[0];
    dispatch_float("test", x.dtype(),
                   [&]<FloatElement T>() { x.mutable_data<T>("test")[0] += static_cast<T>(1); });
    return y;
  });
  EXPECT_THAT(faults, Contains(HasSubstr("overwritten")));
  const auto quiet = faults_of([](Inputs in) {
    const Tensor y = in[0] * 2.0;
    Tensor x = in[0];
    dispatch_float("test", x.dtype(),
                   [&]<FloatElement T>() { x.mutable_data<T>("test")[0] += static_cast<T>(1); });
    return y;
  });
  EXPECT_THAT(quiet, Contains(HasSubstr("input 0 was changed")));
}

TEST(OpTable, FindsAnElementThatIsNeverWritten) {
  const auto faults = faults_of([](Inputs in) {
    Tensor y = Tensor::empty(in[0].shape(), in[0].dtype());
    dispatch_float("test", y.dtype(), [&]<FloatElement T>() {
      const auto out = y.mutable_data<T>("test");
      for (std::size_t i = 0; i + 1 < out.size(); ++i) out[i] = in[0].data<T>()[i];
    });
    return record("almost", y, {in[0]}, {}, [](BackwardCall& call) { call.give(0, call.grad()); });
  });
  EXPECT_THAT(faults, Contains(HasSubstr("NaN or inf in memory filled with NaN")));
}

TEST(OpTable, FindsFloat32ThatLosesDigits) {
  const auto faults = faults_of([](Inputs in) { return (in[0] + 1000.0) - 1000.0; });
  EXPECT_THAT(faults, Contains(HasSubstr("output: float32 is off by")));
}

TEST(OpTable, FindsAResultThatDependsOnTheThreads) {
  const auto faults =
      faults_of([](Inputs in) { return in[0] * static_cast<double>(num_threads()); });
  EXPECT_THAT(faults, Contains(HasSubstr("between 1 and 8 threads")));
}

TEST(OpTable, FindsStateThatMoves) {
  int calls = 0;
  const auto faults =
      faults_of([&calls](Inputs in) { return in[0] * static_cast<double>(++calls); });
  EXPECT_THAT(faults, Contains(AnyOf(HasSubstr("when repeated"), HasSubstr("two backwards"))));
}

TEST(OpTable, FindsStoragesThatStayBehind) {
  std::vector<Tensor> kept;
  const auto faults = faults_of([&kept](Inputs in) {
    kept.push_back(square(in[0]).detached_copy());
    return square(in[0]);
  });
  EXPECT_THAT(faults, Contains(HasSubstr("storages stay behind")));
}

}  // namespace
}  // namespace steady::testing_support
