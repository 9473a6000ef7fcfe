#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/gradcheck.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

using testing::HasSubstr;

/// y = a * b with a backward that is off by `factor` for a.
Tensor product(const Tensor& a, const Tensor& b, double factor = 1.0) {
  Tensor y = Tensor::empty(a.shape(), Dtype::F64);
  const auto out = y.mutable_data<double>("product");
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = factor * a.data<double>()[i] * b.data<double>()[i];
  }
  return record("product", y, {a, b}, {a, b}, [factor](BackwardCall& call) {
    call.give(0, [&] { return product(call.grad(), call.saved(1), factor); });
    call.give(1, [&] { return product(call.grad(), call.saved(0), factor); });
  });
}

/// x^3 whose first derivative is scaled by `first`, and its second by `second`.
Tensor cube(const Tensor& x, double first = 1.0) {
  const Tensor y = product(product(x, x), x).detached_copy();
  return record("cube", y, {x}, {x}, [first](BackwardCall& call) {
    call.give(0, [&] {
      return product(call.grad(), product(call.saved(0), call.saved(0)), 3.0 * first);
    });
  });
}

Tensor leaf(std::initializer_list<double> values) {
  return Tensor::of({static_cast<std::int64_t>(values.size())}, values, Dtype::F64)
      .set_requires_grad();
}

TEST(Gradcheck, PassesARightBackwardFirstAndSecondOrder) {
  const auto f = [](std::span<const Tensor> in) { return cube(product(in[0], in[1])); };
  const GradcheckResult first = gradcheck(f, {leaf({1.1, -0.4}), leaf({0.3, 2.0})});
  EXPECT_TRUE(first.ok) << first.message;
  EXPECT_LT(first.error, 1e-11);
  const GradcheckResult second = gradcheck_second(f, {leaf({1.1, -0.4}), leaf({0.3, 2.0})});
  EXPECT_TRUE(second.ok) << second.message;
  EXPECT_LT(second.error, 1e-10);
}

TEST(Gradcheck, RejectsAWrongBackwardAndSaysWhere) {  // CASES AG-14: x^3 at 1.1 is 3.63
  const auto f = [](std::span<const Tensor> in) { return cube(in[0], 1.001); };
  const GradcheckResult result = gradcheck(f, {leaf({1.1})});
  EXPECT_FALSE(result.ok);
  EXPECT_NEAR(result.error, 1e-3, 1e-4);
  EXPECT_THAT(result.message,
              AllOf(HasSubstr("input 0 element 0"), HasSubstr("numeric"), HasSubstr("analytic")));
}

TEST(Gradcheck, DifferencesInFloat64SeeAnErrorOfAPartInAMillion) {  // CASES AG-14
  const Tensor x = leaf({1.1});
  Tape tape;
  EXPECT_DOUBLE_EQ(tape.backward(cube(x))[x].item(), 3.63);
  const auto f = [](std::span<const Tensor> in) { return cube(in[0], 1 + 1e-6); };
  EXPECT_FALSE(gradcheck(f, {x}).ok);
}

TEST(Gradcheck, RejectsABackwardThatTreatsSavedValuesAsConstants) {  // CASES LN-18
  const auto f = [](std::span<const Tensor> in) {
    const Tensor& x = in[0];
    const Tensor y = product(x, x).detached_copy();
    return record("square", y, {x}, {x}, [](BackwardCall& call) {
      call.give(0, [&] { return product(call.grad(), call.saved(0).detach(), 2.0); });
    });
  };
  EXPECT_TRUE(gradcheck(f, {leaf({1.1})}).ok);
  EXPECT_FALSE(gradcheck_second(f, {leaf({1.1})}).ok);
}

TEST(Gradcheck, RejectsBackwardsThatDifferFromCallToCall) {  // CASES AG-15
  int calls = 0;
  const auto f = [&calls](std::span<const Tensor> in) {
    return cube(in[0], 1.0 + 1e-12 * calls++);
  };
  const GradcheckResult result = gradcheck(f, {leaf({1.1})});
  EXPECT_FALSE(result.ok);
  EXPECT_THAT(result.message, HasSubstr("two backwards differ"));
}

TEST(Gradcheck, RejectsAFunctionThatWritesItsInput) {
  const auto f = [](std::span<const Tensor> in) {
    const Tensor y = cube(in[0]);
    Tensor input = in[0];
    if (recording()) input.mutable_data<double>()[0] += 1.0;
    return y;
  };
  EXPECT_THROW((void)gradcheck(f, {leaf({1.1})}), Error);  // the saved input was overwritten
}

TEST(Gradcheck, RefusesFloat32AndMissingLeaves) {  // CASES AG-14
  const auto f = [](std::span<const Tensor> in) { return cube(in[0]); };
  EXPECT_THROW((void)gradcheck(f, {Tensor::ones({2}).set_requires_grad()}), ShapeError);
  EXPECT_THROW((void)gradcheck(f, {Tensor::ones({2}, Dtype::F64)}), Error);
}

}  // namespace
}  // namespace steady
