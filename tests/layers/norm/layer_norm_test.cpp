#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>

#include "tests/layers/norm/norm_testing.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using testing::AllOf;
using testing::HasSubstr;

TEST(LayerNorm, KeepsDigitsFarFromZero) {  // CASES LN-01
  const Tensor x = Tensor::of({1, 4}, {40000, 40001, 40002, 40003});
  expect_values(layer_norm(x, {4}), {-1.34163542, -0.44721181, 0.44721181, 1.34163542}, 1e-6);

  const Tensor ramp =
      generate({1, 16}, [](double i) { return 10000 + i * 1e-3; }).detached_copy(Dtype::F32);
  const Tensor y = layer_norm(ramp, {16});
  EXPECT_NEAR(values(y).front(), -1.3313333517917272, 1e-5);
  EXPECT_NEAR(values(y).back(), 1.3313333516727044, 1e-5);
}

TEST(LayerNorm, OfAConstantRowIsExactlyTheBias) {  // CASES LN-03
  const Tensor x = leaf({1, 4}, {1e6, 1e6, 1e6, 1e6});
  const Tensor w = leaf({4}, {1, 2, 3, 4});
  const Tensor b = leaf({4}, {0.5, 0.5, 0.5, 0.5});
  const Tensor dy = Tensor::of({1, 4}, {1, 0, 0, -2}, Dtype::F64);
  EXPECT_EQ(values(layer_norm(x, {4}, w, b)), (std::vector<double>{0.5, 0.5, 0.5, 0.5}));
  const Gradients g = gradients([&] { return layer_norm(x, {4}, w, b); }, dy);
  EXPECT_EQ(values(g[w]), (std::vector<double>{0, 0, 0, 0}));
  EXPECT_EQ(values(g[b]), (std::vector<double>{1, 0, 0, -2}));
  expect_values(g[x],
                {869.6263565463042, 553.3985905294663, 553.3985905294663, -1976.423537605237});
}

TEST(LayerNorm, OfARank3InputOverOneAxis) {  // CASES LN-11
  Tensor x = generate({2, 3, 4}, [](double k) { return std::sin(0.37 * k); });
  x.set_requires_grad();
  const Tensor dy = generate({2, 3, 4}, [](double k) { return std::cos(0.91 * k); });
  const Tensor w = leaf({4}, {1, -1, 0.5, 2});
  const Tensor b = leaf({4}, {0, 0.1, 0.2, 0.3});
  Tensor y;
  const Gradients g = gradients([&] { return y = layer_norm(x, {4}, w, b); }, dy);
  expect_values(
      g[w], {-1.0278810092614314, 0.3344861568022273, 0.03249263006106568, -0.10126183441004996});
  expect_values(g[b],
                {0.9751393509032945, 0.8577053415696243, 0.07768666450111605, -0.7623456213105781});
  const std::vector<double> dx = values(g[x]);
  expect_values(Tensor::from<double>({4}, std::span(dx).last(4)),
                {13.615110837225997, -10.961326370861595, 4.734055662342756, -7.387840128707161});
  EXPECT_NEAR(values(y)[0], -1.4318388958030095, 1e-12);
  EXPECT_NEAR(values(y)[3], 2.747959689159804, 1e-12);
}

TEST(LayerNorm, OverTwoAxes) {  // CASES LN-11
  Tensor x = generate({2, 3, 4}, [](double k) { return std::sin(0.37 * k); });
  x.set_requires_grad();
  const Tensor dy = generate({2, 3, 4}, [](double k) { return std::cos(0.91 * k); });
  const Tensor w = Tensor::ones({3, 4}, Dtype::F64).set_requires_grad();
  const Tensor b = Tensor::zeros({3, 4}, Dtype::F64).set_requires_grad();
  const Gradients g = gradients([&] { return layer_norm(x, {3, 4}, w, b); }, dy);
  expect_values(g[w],
                {-0.4614878888931058, -0.9776694262354575, -1.3755016852305342, -1.3617263997771603,
                 -0.8052783928426861, -0.10201018104696385, 0.2586730669106226, 0.35839928240137153,
                 0.7200929466291454, 1.451978745948092, 1.8565152312167437, 1.1751032590936892});
  const std::vector<double> dx = values(g[x]);
  expect_values(Tensor::from<double>({4}, std::span(dx).last(4)),
                {0.9205277923998806, 1.1480591072918136, 0.39965965312211993, -0.748418603164237});
}

TEST(LayerNorm, OfATransposedMatrix) {  // CASES LN-12: the numbers, copied into place
  const auto transposed = [](const std::function<double(double)>& f) {
    return generate({4, 3}, [&](double k) {
      const double i = std::floor(k / 3), j = k - 3 * i;
      return f(4 * j + i);
    });
  };
  Tensor x = transposed([](double k) { return std::sin(0.53 * k); });
  x.set_requires_grad();
  const Tensor dy = transposed([](double k) { return 0.2 * k; });
  Tensor y;
  const Gradients g = gradients([&] { return y = layer_norm(x, {3}); }, dy);
  expect_values(Tensor::from<double>({3}, y.data<double>().first(3)),
                {0.01758110573579511, 1.215847587091563, -1.2334286928273583});
  expect_values(Tensor::from<double>({3}, g[x].data<double>().first(3)),
                {-1.1156525567209588, 0.5698273168359977, 0.545825239884961});
}

TEST(LayerNorm, WithACotangentOfOnes) {  // CASES LN-13
  const Tensor x = leaf({2, 3}, {1, 2, 4, 0, -1, 5});
  const Tensor w = leaf({3}, {1, 2, -3});
  const Tensor b = leaf({3}, {0, 0, 0});
  const Gradients g =
      gradients([&] { return layer_norm(x, {3}, w, b); }, Tensor::ones({2, 3}, Dtype::F64));
  expect_values(g[x], {-0.8017708400392252, 1.202674300018709, -0.40090345997948473,
                       -0.03687037126560022, 0.03072687640228411, 0.006143494863316112});
  expect_values(g[w], {-1.5770416707414152, -1.1562606266220299, 2.733302297363444});
  expect_values(g[b], {2, 2, 2});
}

TEST(LayerNorm, TakesParametersOfExactlyTheDeclaredShape) {  // CASES LN-16
  const Tensor x = Tensor::ones({5, 2, 3, 4});
  EXPECT_NO_THROW((void)layer_norm(x, {2, 3, 4}, Tensor::ones({2, 3, 4})));
  for (const Shape& shape : {Shape{2}, Shape{24}, Shape{1, 2, 3, 4}, Shape{1, 3, 4}, Shape{4}}) {
    EXPECT_THROW((void)layer_norm(x, {2, 3, 4}, Tensor::ones(shape)), ShapeError);
    EXPECT_THROW((void)layer_norm(x, {2, 3, 4}, {}, Tensor::ones(shape)), ShapeError);
  }
  try {
    (void)layer_norm(x, {2, 3, 4}, Tensor::ones({24}));
  } catch (const ShapeError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("layer_norm: weight must be f32 [2, 3, 4]"),
                                    HasSubstr("got weight f32 [24], x f32 [5, 2, 3, 4]")));
  }
}

TEST(LayerNorm, RefusesWhatItCannotNormalize) {
  const Tensor x = Tensor::ones({2, 3});
  EXPECT_THROW((void)layer_norm({}, {3}), ShapeError);
  EXPECT_THROW((void)layer_norm(x, {2}), ShapeError);
  EXPECT_THROW((void)layer_norm(x, Shape{}), ShapeError);
  EXPECT_THROW((void)layer_norm(x, {1, 2, 3}), ShapeError);
  EXPECT_THROW((void)layer_norm(Tensor::ones({2, 3}, Dtype::I32), {3}), ShapeError);
  EXPECT_THROW((void)layer_norm(Tensor::ones({2, 0}), {0}), ShapeError);
  EXPECT_THROW((void)layer_norm(x, {3}, Tensor::ones({3}, Dtype::F64)), ShapeError);
  EXPECT_THROW((void)layer_norm(x, {3}, {}, {}, -1e-5), Error);
  EXPECT_THROW((void)layer_norm(x, {3}, {}, {}, std::nan("")), Error);
  EXPECT_THROW((void)layer_norm_over_sample(Tensor::ones({3})), ShapeError);
  EXPECT_THROW((void)layer_norm_over_sample(Tensor::ones({2, 4, 3}), Tensor::ones({4, 3})),
               ShapeError);
}

TEST(LayerNorm, SecondDerivativeIsExactAndAThirdIsRefused) {  // CASES LN-18
  const Tensor x = leaf({1, 3}, {1, 2, 4});
  const Tensor dy = Tensor::of({1, 3}, {1, 0.5, -2}, Dtype::F64);
  Tape tape;
  const Tensor y = layer_norm(x, {3});
  const Gradients first = tape.backward(y, {.record = true, .cotangent = dy});
  expect_values(first[x], {-0.17180312831864453, 0.257717148640735, -0.08591402032209094});
  const Tensor v = Tensor::of({1, 3}, {1, 1, -1}, Dtype::F64);
  const Gradients second = tape.backward(first[x], {.record = true, .cotangent = v});
  expect_values(second[x], {-0.3108774801427431, 0.5522474826391865, -0.2413700024964438});
  try {
    (void)tape.backward(second[x], {.cotangent = v});
    ADD_FAILURE() << "a third derivative came back";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("layer_norm_double_backward"));
  }
}

TEST(LayerNorm, ParameterGradientsAreSumsForAnyNumberOfThreads) {  // CASES LN-19
  const int before = num_threads();
  for (const std::int64_t rows : {1, 63, 64, 65, 1025, 70001}) {
    const Tensor x = noise({rows, 5}, "x").detached_copy(Dtype::F32);
    const Tensor dy = noise({rows, 5}, "dy").detached_copy(Dtype::F32);
    const Tensor w = Tensor::ones({5}).set_requires_grad();
    const Tensor b = Tensor::zeros({5}).set_requires_grad();
    set_num_threads(1);
    const Gradients one = gradients([&] { return layer_norm(x, {5}, w, b); }, dy);
    for (const int threads : {2, 3, 8}) {
      set_num_threads(threads);
      const Gradients many = gradients([&] { return layer_norm(x, {5}, w, b); }, dy);
      EXPECT_TRUE(same_bits(one[w], many[w])) << rows << " rows, " << threads << " threads";
      EXPECT_TRUE(same_bits(one[b], many[b])) << rows << " rows, " << threads << " threads";
    }
    const std::vector<double> xs = values(x), dys = values(dy);
    std::vector<double> dw(5), db(5), size_w(5), size_b(5);
    for (std::size_t r = 0; r < xs.size(); r += 5) {
      double mean = 0, var = 0;
      for (std::size_t i = 0; i < 5; ++i) mean += xs[r + i] / 5;
      for (std::size_t i = 0; i < 5; ++i) var += (xs[r + i] - mean) * (xs[r + i] - mean) / 5;
      for (std::size_t i = 0; i < 5; ++i) {
        const double term = dys[r + i] * (xs[r + i] - mean) / std::sqrt(var + 1e-5);
        dw[i] += term;
        size_w[i] += std::abs(term);
        db[i] += dys[r + i];
        size_b[i] += std::abs(dys[r + i]);
      }
    }
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_NEAR(values(one[w])[i], dw[i], 1e-5 * size_w[i]) << rows << " rows";
      EXPECT_NEAR(values(one[b])[i], db[i], 1e-5 * size_b[i]) << rows << " rows";
    }
  }
  set_num_threads(before);
}

TEST(LayerNorm, EveryPathGivesAParameterGradient) {  // CASES LN-21
  for (const std::int64_t width : {1, 7, 8, 16, 33}) {
    const Tensor x = noise({6, width}, "x");
    const Tensor dy = noise({6, width}, "dy");
    const Tensor w = Tensor::ones({width}, Dtype::F64).set_requires_grad();
    const Tensor b = Tensor::zeros({width}, Dtype::F64).set_requires_grad();
    const auto check = [&](const Gradients& g) {
      ASSERT_TRUE(g.contains(w) && g.contains(b)) << width;
      EXPECT_EQ(g[w].shape(), w.shape());
      EXPECT_EQ(g[b].shape(), b.shape());
    };
    check(gradients([&] { return layer_norm(x, {width}, w, b); }, dy));
    check(gradients([&] { return layer_norm_over_sample(x, w, b); }, dy));
  }
}

TEST(LayerNorm, UsesEpsInFullPrecision) {                          // CASES LN-22
  const Tensor x = Tensor::of({1, 2}, {1e-6, -1e-6}, Dtype::F64);  // variance 1e-12
  expect_values(layer_norm(x, {2}, {}, {}, 1e-12), {std::sqrt(0.5), -std::sqrt(0.5)}, 1e-14);
  expect_values(layer_norm(x, {2}, {}, {}, 3e-12), {0.5, -0.5}, 1e-14);
}

TEST(LayerNorm, OverSampleIsGroupNormWithOneGroup) {  // CASES LN-14, one of its groups
  // Channels 0 and 1 of the reference, feature last: its first group is this whole sample.
  Tensor x = generate({2, 2, 1, 2}, [](double k) {
    const double n = std::floor(k / 4), h = std::floor((k - 4 * n) / 2), c = k - 4 * n - 2 * h;
    return std::sin(0.61 * (8 * n + 2 * c + h));
  });
  x.set_requires_grad();
  const Tensor dy = generate({2, 2, 1, 2}, [](double k) {
    const double n = std::floor(k / 4), h = std::floor((k - 4 * n) / 2), c = k - 4 * n - 2 * h;
    return std::cos(0.33 * (8 * n + 2 * c + h));
  });
  const Tensor w = leaf({2}, {1, 2});
  const Tensor b = leaf({2}, {0, 0.1});
  Tensor y;
  const Gradients g = gradients([&] { return y = layer_norm_over_sample(x, w, b); }, dy);
  const std::vector<double> got = values(y);
  expect_values(Tensor::of({4}, {got[0], got[2], got[1], got[3]}, Dtype::F64),
                {-1.588543198551928, -0.11990937279166816, 1.7379648197970252, 1.8789403228901667});
  const std::vector<double> dx = values(g[x]);
  expect_values(Tensor::of({4}, {dx[4], dx[6], dx[5], dx[7]}, Dtype::F64),
                {0.11181467988732718, 0.2918567373584331, -0.8140352639974, 0.41036384675163884});
  expect_values(g[w], {-0.05126479648190874, -0.492863710270926});
  expect_values(g[b], {0.0839103849762215, -0.5318789610949382});
}

TEST(LayerNorm, OfNoRowsIsEmptyWithZeroParameterGradients) {
  const Tensor x = Tensor::zeros({0, 3}, Dtype::F64).set_requires_grad();
  const Tensor w = leaf({3}, {1, 1, 1});
  const Tensor b = leaf({3}, {0, 0, 0});
  const Gradients g =
      gradients([&] { return layer_norm(x, {3}, w, b); }, Tensor::zeros({0, 3}, Dtype::F64));
  EXPECT_EQ(g[x].shape(), (Shape{0, 3}));
  EXPECT_EQ(values(g[w]), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(values(g[b]), (std::vector<double>{0, 0, 0}));
}

TEST(LayerNormModule, IsTheOperationWithItsParameters) {
  LayerNorm norm({.normalized_shape = {3, 4}, .eps = 1e-3});
  const Tensor x = noise({2, 3, 4}, "x").detached_copy(Dtype::F32);
  EXPECT_TRUE(same_bits(norm(x), layer_norm(x, {3, 4}, norm.weight, norm.bias, 1e-3)));
  LayerNorm sample({.normalized_shape = {4}, .over_sample = true});
  EXPECT_TRUE(same_bits(sample(x), layer_norm_over_sample(x, sample.weight, sample.bias)));
  EXPECT_THROW((void)sample(Tensor::ones({2, 3, 5})), ShapeError);
  norm.eval();
  EXPECT_TRUE(same_bits(norm(x), layer_norm(x, {3, 4}, norm.weight, norm.bias, 1e-3)));
  EXPECT_EQ(norm.statistics(), "");
}

TEST(LayerNormModule, OptionsSayWhichParametersExist) {
  const auto names = [](const LayerNorm::Options& options) {
    std::string text;
    for (const Parameter& p : LayerNorm(options).parameters()) {
      text += p.name + ":" + std::string(to_string(p.role)) + " ";
    }
    return text;
  };
  EXPECT_EQ(names({.normalized_shape = {4}}), "weight:norm scale bias:norm shift ");
  EXPECT_EQ(names({.normalized_shape = {4}, .bias = false}), "weight:norm scale ");
  EXPECT_EQ(names({.normalized_shape = {4}, .affine = false}), "");
  EXPECT_EQ(LayerNorm({.normalized_shape = {4}}).describe(), "LayerNorm([4], eps=1e-05)");
  EXPECT_THAT(LayerNorm({.normalized_shape = {4}, .bias = false, .over_sample = true}).describe(),
              AllOf(HasSubstr("over=sample"), HasSubstr("bias=false")));
}

TEST(LayerNormModule, RefusesBadOptions) {
  EXPECT_THROW(LayerNorm({}), ShapeError);
  EXPECT_THROW(LayerNorm({.normalized_shape = {3, 0}}), ShapeError);
  EXPECT_THROW(LayerNorm({.normalized_shape = {3, 4}, .over_sample = true}), ShapeError);
  EXPECT_THROW(LayerNorm({.normalized_shape = {3}, .eps = -1}), Error);
}

}  // namespace
}  // namespace steady
