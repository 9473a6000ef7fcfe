// What "normalize" means: softmax (positive, sum 1), LayerNorm (mean 0, variance 1), RMSNorm
// (second moment 1), and the identities that follow, as properties of random inputs of many shapes,
// scales and places. eps = 0 unless the identity is about eps; float64 unless it says otherwise.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/ops/softmax.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>
#include <steadygrad/layers/norm/scale_norm.hpp>

#include "tests/layers/norm/norm_testing.hpp"

namespace steady {
namespace {

using namespace norm_testing;

constexpr double Rounding = 1e-11;  // of sums of up to 257 terms beside offsets of 30 deviations

using Norm = std::function<Tensor(const Tensor&)>;

Tensor ln(const Tensor& x) { return layer_norm(x, {x.dim(-1)}, {}, {}, 0); }
Tensor rms(const Tensor& x) { return rms_norm(x, {x.dim(-1)}, {}, 0); }
Tensor bn(const Tensor& x) { return batch_norm(x, {}, {}, 0).y; }
/// GroupNorm of two groups where there is one position: LayerNorm of each half.
Tensor gn(const Tensor& x) {
  const std::int64_t half = x.dim(1) / 2;
  return reshape(layer_norm(reshape(x, {x.dim(0), 2, half}), {half}, {}, {}, 0), x.shape());
}
Tensor sn(const Tensor& x) { return scale_norm(x, {x.dim(-1)}, {}, 0); }
Tensor soft(const Tensor& x) { return softmax(x); }

/// One random problem: x and dy [rows, width].
struct Draw {
  Tensor x, dy;
  [[nodiscard]] double width() const { return static_cast<double>(x.dim(-1)); }
};

/// Calls `check` for random inputs of every shape, scale and place.
void for_draws(const std::function<void(const Draw&)>& check, double largest_offset = 30) {
  int draw = 0;
  for (const std::int64_t rows : {2, 3, 5, 64}) {
    for (const std::int64_t width : {4, 6, 16, 34, 256}) {
      for (const double scale : {1e-3, 1.0, 1e3}) {
        const double offset = draw % 2 == 0 ? 0.0 : largest_offset * scale;
        const std::string name = "draw " + std::to_string(draw++);
        SCOPED_TRACE(testing::Message() << name << ": " << rows << " x " << width << ", scale "
                                        << scale << ", offset " << offset);
        Tensor x = noise({rows, width}, name, offset, scale);
        check({x.set_requires_grad(), noise({rows, width}, name + " dy")});
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

struct Result {
  Tensor y, dx;
};
Result run(const Norm& norm, const Tensor& x, const Tensor& dy) {
  const Tensor leaf = x.detached_copy().set_requires_grad();
  Tape tape;
  const Tensor y = norm(leaf);
  return {y.detach(), tape.backward(y, {.cotangent = dy})[leaf].detach()};
}

double largest(const Tensor& t) { return max(abs(t)).item(); }

/// |t| <= tolerance * scale for every element.
void expect_zero(const Tensor& t, double scale = 1, double tolerance = Rounding) {
  EXPECT_LE(largest(t), tolerance * scale);
}
void expect_same(const Tensor& a, const Tensor& b, double tolerance = Rounding) {
  expect_zero(a - b, std::max(1.0, largest(b)), tolerance);
}

/// How much a norm may enlarge what rounding did to its input: 1 / std of the cells it shares, over
/// the batch or over half a row.
double gain_of(const Tensor& x) {
  const Tensor halves = reshape(x.detach(), {x.dim(0), 2, x.dim(1) / 2});
  const double batch = largest(1.0 / sqrt(var(x.detach(), 0, {.unbiased = false})));
  return std::max(batch, largest(1.0 / sqrt(var(halves, -1, {.unbiased = false}))));
}

/// The matrix of derivatives of f by a vector x: [n, n].
Tensor jacobian(const Norm& f, const Tensor& x) {
  const std::int64_t n = x.numel();
  Tensor rows = Tensor::empty({n, n}, Dtype::F64);
  for (std::int64_t i = 0; i < n; ++i) {
    Tensor unit = Tensor::zeros(x.shape(), Dtype::F64);
    unit.mutable_data<double>()[static_cast<std::size_t>(i)] = 1;
    const std::vector<double> row = values(run(f, x, unit).dx);
    std::ranges::copy(row, rows.mutable_data<double>().begin() + i * n);
  }
  return rows;
}

/// Eigenvalues of a symmetric matrix, ascending, by Jacobi's rotations.
std::vector<double> eigenvalues(const Tensor& symmetric) {
  const auto n = static_cast<std::size_t>(symmetric.dim(0));
  std::vector<double> a = values(symmetric);
  const auto rotate = [&](std::size_t p, std::size_t q) {
    const double angle = 0.5 * std::atan2(2 * a[p * n + q], a[q * n + q] - a[p * n + p]);
    const double c = std::cos(angle), s = std::sin(angle);
    for (std::size_t k = 0; k < n; ++k) {
      const double u = a[k * n + p], v = a[k * n + q];
      a[k * n + p] = c * u - s * v;
      a[k * n + q] = s * u + c * v;
    }
    for (std::size_t k = 0; k < n; ++k) {
      const double u = a[p * n + k], v = a[q * n + k];
      a[p * n + k] = c * u - s * v;
      a[q * n + k] = s * u + c * v;
    }
  };
  for (int sweep = 0; sweep < 12; ++sweep) {
    for (std::size_t p = 0; p < n; ++p) {
      for (std::size_t q = p + 1; q < n; ++q) rotate(p, q);
    }
  }
  std::vector<double> result;
  for (std::size_t i = 0; i < n; ++i) result.push_back(a[i * n + i]);
  std::ranges::sort(result);
  return result;
}

std::vector<double> singular_values(const Tensor& matrix) {
  std::vector<double> result = eigenvalues(matmul(matrix, matrix, {.transpose_a = true}));
  for (double& v : result) v = std::sqrt(std::max(v, 0.0));
  return result;
}

/// Small vectors for whole Jacobians.
void for_vectors(const std::function<void(const Tensor& x)>& check) {
  for (const std::int64_t width : {3, 4, 8}) {
    for (int i = 0; i < 5; ++i) {
      const std::string name = "vector " + std::to_string(width) + std::to_string(i);
      check(noise({1, width}, name, i, 1.0 + i));
    }
  }
}

// --- the three meanings -----------------------------------------------------------------------

TEST(ThreeMeanings, SoftmaxIsPositiveAndSumsToOne) {
  for_draws([](const Draw& d) {
    for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
      // Logits within what exp can hold: at 1e3 all but one are 0, which is >= 0 all the same.
      const Tensor y = soft(d.x.detached_copy(dtype)).detached_copy(Dtype::F64);
      for (const double v : values(y)) EXPECT_GE(v, 0);
      expect_zero(sum(y, -1) - 1.0, 1, dtype == Dtype::F64 ? 1e-14 : 1e-6);
    }
    const Tensor small = d.x.detach() / largest(d.x);
    for (const double v : values(soft(small))) EXPECT_GT(v, 0);
  });
}

TEST(ThreeMeanings, LayerNormHasMeanZeroAndVarianceOne) {
  for_draws([](const Draw& d) {
    for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
      const Tensor y = ln(d.x.detached_copy(dtype)).detached_copy(Dtype::F64);
      const double tolerance = dtype == Dtype::F64 ? Rounding : 3e-6;
      expect_zero(mean(y, -1), 1, tolerance);
      expect_zero(var(y, -1, {.unbiased = false}) - 1.0, 1, tolerance);
      expect_zero(sum(square(y), -1) - d.width(), d.width(), tolerance);  // |y|^2 = d
    }
  });
}

TEST(ThreeMeanings, RmsNormHasSecondMomentOneAndKeepsItsMean) {
  for_draws([](const Draw& d) {
    for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
      const Tensor y = rms(d.x.detached_copy(dtype)).detached_copy(Dtype::F64);
      const double tolerance = dtype == Dtype::F64 ? Rounding : 3e-6;
      expect_zero(mean(square(y), -1) - 1.0, 1, tolerance);
      const Tensor ratio = mean(d.x.detach(), -1) / sqrt(mean(square(d.x.detach()), -1));
      expect_same(mean(y, -1), ratio, tolerance);
    }
  });
}

TEST(ThreeMeanings, SoftmaxIsExpNormalizedInTheFirstNorm) {
  for_draws([](const Draw& d) {
    const Tensor x = d.x.detach() / largest(d.x);
    expect_same(soft(x), exp(x) / sum(abs(exp(x)), -1, true), 1e-15);
    expect_same(soft(x + 7.0), soft(x), 1e-14);  // blind to a shift
  });
}

TEST(ThreeMeanings, LayerNormIsRmsNormOfWhatIsLeftOfTheMean) {
  for_draws([](const Draw& d) { expect_same(ln(d.x), rms(d.x - mean(d.x, -1, true))); });
}

TEST(ThreeMeanings, ScaleNormWithTheRootOfTheWidthIsRmsNorm) {
  for_draws([](const Draw& d) { expect_same(sn(d.x) * std::sqrt(d.width()), rms(d.x)); });
}

// --- gradients ----------------------------------------------------------------------------------

TEST(NormGradient, OfLayerNormIsOrthogonalToOnesAndToTheOutput) {
  for_draws([](const Draw& d) {
    const auto [y, dx] = run(ln, d.x, d.dy);
    const double scale = largest(dx) * d.width();
    expect_zero(sum(dx, -1), scale);
    expect_zero(sum(dx * y, -1), scale);
  });
}

TEST(NormGradient, OfRmsAndScaleNormIsOrthogonalToTheInputButNotToOnes) {
  for_draws([](const Draw& d) {
    for (const Norm& norm : {Norm(rms), Norm(sn)}) {
      const Tensor dx = run(norm, d.x, d.dy).dx;
      expect_zero(sum(dx * d.x.detach(), -1), largest(dx) * largest(d.x) * d.width());
      EXPECT_GT(largest(sum(dx, -1)), 1e-4 * largest(dx));
    }
  });
}

TEST(NormGradient, OfRmsNormAlongTheInputIsWhatEpsLeaves) {
  for_draws([](const Draw& d) {
    const double eps = 0.1 * mean(square(d.x)).item();
    const auto [y, dx] =
        run([&](const Tensor& x) { return rms_norm(x, {x.dim(-1)}, {}, eps); }, d.x, d.dy);
    const Tensor share = eps / (mean(square(d.x.detach()), -1) + eps);
    expect_same(sum(dx * d.x.detach(), -1), share * sum(d.dy * y, -1));
  });
}

TEST(NormGradient, OfBatchNormIsOrthogonalPerFeature) {
  for_draws([](const Draw& d) {
    const auto [y, dx] = run(bn, d.x, d.dy);
    const double scale = largest(d.dy) * gain_of(d.x) * d.width();
    expect_zero(sum(dx, 0), scale);
    expect_zero(sum(dx * y, 0), scale);
  });
}

TEST(NormGradient, OfGroupNormIsOrthogonalPerGroup) {
  for_draws([](const Draw& d) {
    const auto [y, dx] = run(gn, d.x, d.dy);
    const Shape groups{d.x.dim(0), 2, d.x.dim(1) / 2};
    const double scale = largest(d.dy) * gain_of(d.x) * d.width();
    expect_zero(sum(reshape(dx, groups), -1), scale);
    expect_zero(sum(reshape(dx * y, groups), -1), scale);
  });
}

TEST(NormGradient, OfLayerNormHasNoLargerVarianceThanTheOneAbove) {  // Xu et al. 2019
  double closest = 0;
  for_draws([&](const Draw& d) {
    const Tensor dx = run(ln, d.x, d.dy).dx;
    const Tensor bound =
        var(d.dy, -1, {.unbiased = false}) / var(d.x.detach(), -1, {.unbiased = false});
    const Tensor ratio = var(dx, -1, {.unbiased = false}) / bound;
    EXPECT_LE(largest(ratio), 1 + 1e-9);
    closest = std::max(closest, largest(ratio));
  });
  EXPECT_GT(closest, 0.9);  // the bound is tight
}

TEST(NormGradient, OfAScaleInvariantLossIsOrthogonalToTheWeights) {
  for_draws([](const Draw& d) {
    const Tensor w = noise({3, d.x.dim(1)}, "w").set_requires_grad();
    for (const Norm& norm : {Norm(ln), Norm(rms), Norm(bn)}) {
      Tape tape;
      const Tensor y = tanh(norm(matmul(d.x.detach(), w, {.transpose_b = true})));
      const Tensor dw = tape.backward(y, {.cotangent = noise(y.shape(), "c")})[w];
      const double terms = largest(dw) * largest(w) * d.width() + static_cast<double>(d.x.numel());
      expect_zero(sum(dw * w.detach()), terms);
    }
  });
}

// --- invariances --------------------------------------------------------------------------------

TEST(NormInvariance, ToScaleWithTheGradientDividedByIt) {
  for_draws([](const Draw& d) {
    const double gain = gain_of(d.x), condition = 1 + largest(d.x) * gain;
    for (const Norm& norm : {Norm(ln), Norm(rms), Norm(bn), Norm(gn), Norm(sn)}) {
      for (const double a : {0.1, 7.3}) {
        const Result one = run(norm, d.x, d.dy);
        const Result scaled = run(norm, d.x.detach() * a, d.dy);
        expect_zero(scaled.y - one.y, condition);
        expect_zero(scaled.dx * a - one.dx, largest(d.dy) * gain * condition);
      }
    }
  });
}

TEST(NormInvariance, ToAShiftOfAllFeaturesHoldsWithAMeanAndFailsWithoutOne) {
  for_draws([](const Draw& d) {
    const double shift = 3 * largest(d.x);
    for (const Norm& norm : {Norm(ln), Norm(bn), Norm(gn)}) {
      expect_zero(norm(d.x + shift) - norm(d.x), 1 + largest(d.x) * gain_of(d.x));
    }
    for (const Norm& norm : {Norm(rms), Norm(sn)}) {
      EXPECT_GT(largest(norm(d.x + shift) - norm(d.x)), 1e-3);
    }
  });
}

TEST(NormInvariance, ToScaleIsShortByWhatEpsSays) {
  constexpr double Eps = 1e-5;
  for_draws([](const Draw& d) {
    const Tensor unit = ln(d.x.detach());  // variance 1
    for (const double a : {1.0, 0.1, 0.001}) {
      const Tensor y = layer_norm(unit * a, {unit.dim(-1)}, {}, {}, Eps);
      expect_same(y, unit / std::sqrt(1 + Eps / (a * a)));
    }
  });
  EXPECT_NEAR(1 - 1 / std::sqrt(1 + Eps / 0.01), 5e-4, 1e-5);
  EXPECT_NEAR(1 - 1 / std::sqrt(1 + Eps / 1e-6), 0.70, 0.01);
}

// --- Jacobians ----------------------------------------------------------------------------------

TEST(NormJacobian, OfLayerNormHasTwoZerosAndTheInverseDeviationOtherwise) {
  for_vectors([](const Tensor& x) {
    const std::vector<double> s = singular_values(jacobian(ln, x));
    const double inverse = 1 / std::sqrt(var(x, -1, {.unbiased = false}).item());
    EXPECT_NEAR(s[0], 0, 1e-7);  // a root of rounding
    EXPECT_NEAR(s[1], 0, 1e-7);
    for (std::size_t i = 2; i < s.size(); ++i) EXPECT_NEAR(s[i], inverse, Rounding * inverse);
  });
}

TEST(NormJacobian, OfRmsNormHasOneZeroAndTheInverseRmsOtherwise) {
  for_vectors([](const Tensor& x) {
    const std::vector<double> s = singular_values(jacobian(rms, x));
    const double inverse = 1 / std::sqrt(mean(square(x)).item());
    EXPECT_NEAR(s[0], 0, 1e-7);
    for (std::size_t i = 1; i < s.size(); ++i) EXPECT_NEAR(s[i], inverse, Rounding * inverse);
  });
}

TEST(NormJacobian, OfBatchNormOfOneFeatureHasTwoZeros) {
  for_vectors([](const Tensor& x) {
    const Tensor column = reshape(x, {x.dim(1), 1});
    const std::vector<double> s = singular_values(jacobian(bn, column));
    const double inverse = 1 / std::sqrt(var(x, -1, {.unbiased = false}).item());
    EXPECT_NEAR(s[0], 0, 1e-7);
    EXPECT_NEAR(s[1], 0, 1e-7);
    for (std::size_t i = 2; i < s.size(); ++i) EXPECT_NEAR(s[i], inverse, Rounding * inverse);
  });
}

TEST(NormJacobian, OfSoftmaxIsSymmetricSumsToZeroAndLiesBetweenZeroAndAHalf) {
  for_vectors([](const Tensor& x) {
    const Tensor j = jacobian(soft, x);
    expect_zero(sum(j, 0), 1, 1e-15);
    expect_zero(sum(j, 1), 1, 1e-15);
    expect_zero(j - transpose(j, 0, 1), 1, 1e-16);
    const std::vector<double> e = eigenvalues(j);
    EXPECT_GE(e.front(), -1e-15);
    EXPECT_LE(e.back(), 0.5);
  });
}

}  // namespace
}  // namespace steady
