#include <gtest/gtest.h>

#include <array>
#include <steadygrad/core/gradcheck.hpp>
#include <steadygrad/layers/norm/dynamic_erf.hpp>
#include <steadygrad/layers/norm/dynamic_tanh.hpp>
#include <steadygrad/layers/norm/l2_normalize.hpp>
#include <steadygrad/layers/norm/partial_rms_norm.hpp>
#include <steadygrad/layers/norm/scale_norm.hpp>

#include "tests/layers/norm/norm_testing.hpp"

// Norms of rows with the library's forward and a backward written here, right or with one fault.
// The check that guards the library must pass the right one and reject every fault.

namespace steady {
namespace {

using namespace norm_testing;

enum class Norm { Partial, Scale, L2, L2Clamped, Tanh, Erf };
enum class Fault {
  None,
  NoPull,            // dx as if the scale were a constant
  PullOnAll,         // the projection on elements that are not measured
  PullOfMeasured,    // <xhat, w> over the measured elements alone
  SumForMean,        // the projection not divided by the number of measured elements
  PullWhereClamped,  // a projection where eps is the divisor
  NoScale,           // dx without the factor of the row
  NoGain,            // dx from dy instead of dy * gain
  WeightWithX,       // the gain's gradient with x for xhat
  NoSlope,           // f' taken for 1
  OtherSlope,        // f' of the other function
  NoAlpha,           // dx without alpha
  AlphaWithoutX,     // dalpha = sum of d
  GainOfSlope,       // dweight with f' for f
};

constexpr std::int64_t Rows = 3, Width = 5;
constexpr double Part = 0.5;  // 3 of 5 elements
constexpr double Clamp = 50;

bool is_curve(Norm norm) { return norm == Norm::Tanh || norm == Norm::Erf; }

/// inputs: x, gain (vector, scalar or none), then alpha for the curves.
Tensor forward(Norm norm, std::span<const Tensor> in) {
  switch (norm) {
    case Norm::Partial:
      return partial_rms_norm(in[0], {Width}, in[1], Part, 0.3);
    case Norm::Scale:
      return scale_norm(in[0], {Width}, in[1]);
    case Norm::L2:
      return l2_normalize(in[0], {Width});
    case Norm::L2Clamped:
      return l2_normalize(in[0], {Width}, Clamp);
    case Norm::Tanh:
      return dynamic_tanh(in[0], {Width}, in[2], in[1]);
    case Norm::Erf:
      return dynamic_erf(in[0], {Width}, in[2], {}, in[1]);
  }
  return {};
}

struct Gradient {
  Tensor x, gain, alpha;
};

/// Where a tensor of gradients of gains is written: one number, or one per element.
struct Gains {
  std::span<const double> values;
  std::span<double> gradient;
  [[nodiscard]] double at(std::size_t i) const {
    return values.empty() ? 1 : values[values.size() == 1 ? 0 : i];
  }
  void add(std::size_t i, double v) const {
    if (!gradient.empty()) gradient[gradient.size() == 1 ? 0 : i] += v;
  }
};

void scaled_row(Norm norm, Fault fault, std::span<const double> x, std::span<const double> dy,
                const Gains& gains, std::span<double> dx) {
  const std::size_t n = x.size(), measured = norm == Norm::Partial ? 3 : n;
  double q = 0;
  for (std::size_t i = 0; i < measured; ++i) q += x[i] * x[i];
  const double count = double(measured);
  const double s = norm == Norm::Partial     ? 1 / std::sqrt(q / count + 0.3)
                   : norm == Norm::L2Clamped ? 1 / Clamp
                                             : 1 / std::sqrt(q);
  double l = norm == Norm::Partial && fault != Fault::SumForMean ? 1 / count : 1;
  if (norm == Norm::L2Clamped && fault != Fault::PullWhereClamped) l = 0;
  if (fault == Fault::NoPull) l = 0;
  double pull = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (fault != Fault::PullOfMeasured || i < measured) pull += dy[i] * gains.at(i) * x[i] * s;
  }
  for (std::size_t i = 0; i < n; ++i) {
    const double w = dy[i] * (fault == Fault::NoGain ? 1 : gains.at(i));
    const double k = i < measured || fault == Fault::PullOnAll ? l : 0;
    dx[i] = (w - k * x[i] * s * pull) * (fault == Fault::NoScale ? 1 : s);
    gains.add(i, dy[i] * x[i] * (fault == Fault::WeightWithX ? 1 : s));
  }
}

double slope(Norm norm, double z) {
  if (norm == Norm::Erf) return 2 / std::sqrt(std::acos(-1.0)) * std::exp(-z * z);
  return 1 - std::tanh(z) * std::tanh(z);
}

void curved_row(Norm norm, Fault fault, std::span<const double> x, std::span<const double> dy,
                const Gains& gains, double alpha, double& dalpha, std::span<double> dx) {
  const Norm other = norm == Norm::Tanh ? Norm::Erf : Norm::Tanh;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double z = alpha * x[i];
    const double f = norm == Norm::Tanh ? std::tanh(z) : std::erf(z);
    const double first =
        fault == Fault::NoSlope ? 1 : slope(fault == Fault::OtherSlope ? other : norm, z);
    const double d = dy[i] * first * (fault == Fault::NoGain ? 1 : gains.at(i));
    dx[i] = d * (fault == Fault::NoAlpha ? 1 : alpha);
    dalpha += d * (fault == Fault::AlphaWithoutX ? 1 : x[i]);
    gains.add(i, dy[i] * (fault == Fault::GainOfSlope ? first : f));
  }
}

Gradient backward(Norm norm, Fault fault, const Tensor& x, const Tensor& gain, const Tensor& alpha,
                  const Tensor& dy) {
  Gradient g{Tensor::empty(x.shape(), Dtype::F64), {}, {}};
  Gains gains;
  if (gain.defined()) {
    g.gain = Tensor::zeros(gain.shape(), Dtype::F64);
    gains = {gain.data<double>(), g.gain.mutable_data<double>()};
  }
  double dalpha = 0;
  for (std::size_t r = 0; r < Rows; ++r) {
    const auto row = [&](const auto& span) { return span.subspan(r * Width, Width); };
    const auto xs = row(x.data<double>()), dys = row(dy.data<double>());
    const auto dx = row(g.x.mutable_data<double>());
    if (is_curve(norm)) {
      curved_row(norm, fault, xs, dys, gains, alpha.item(), dalpha, dx);
    } else {
      scaled_row(norm, fault, xs, dys, gains, dx);
    }
  }
  if (alpha.defined()) g.alpha = Tensor::full({1}, dalpha, Dtype::F64);
  return g;
}

/// The norm with the backward above.
TensorFunction mutant(Norm norm, Fault fault) {
  return [norm, fault](std::span<const Tensor> in) {
    std::vector<Tensor> constants;
    for (const Tensor& t : in) constants.push_back(t.defined() ? t.detach() : t);
    return record("mutant", forward(norm, constants), {in[0], in[1], in[2]}, {in[0], in[1], in[2]},
                  [norm, fault](BackwardCall& call) {
                    const Gradient g = backward(norm, fault, call.saved(0), call.saved(1),
                                                call.saved(2), call.grad());
                    call.give(0, g.x);
                    call.give(1, g.gain);
                    call.give(2, g.alpha);
                  });
  };
}

std::vector<Tensor> inputs_of(Norm norm) {
  const bool vector = norm == Norm::Partial || is_curve(norm);
  Tensor gain;
  if (vector) gain = noise({Width}, "gain").set_requires_grad();
  if (norm == Norm::Scale) gain = Tensor::full({}, 1.7, Dtype::F64).set_requires_grad();
  return {noise({Rows, Width}, "x", 0.5).set_requires_grad(), gain,
          is_curve(norm) ? leaf({1}, {0.6}) : Tensor()};
}

std::vector<Fault> faults_of(Norm norm) {
  if (is_curve(norm)) {
    return {Fault::NoGain,  Fault::NoSlope,       Fault::OtherSlope,
            Fault::NoAlpha, Fault::AlphaWithoutX, Fault::GainOfSlope};
  }
  if (norm == Norm::L2Clamped) return {Fault::NoScale, Fault::PullWhereClamped};
  std::vector<Fault> faults{Fault::NoPull, Fault::NoScale};
  if (norm != Norm::L2) faults.insert(faults.end(), {Fault::NoGain, Fault::WeightWithX});
  if (norm == Norm::Partial) {
    faults.insert(faults.end(), {Fault::PullOnAll, Fault::PullOfMeasured, Fault::SumForMean});
  }
  return faults;
}

class RowMutation : public testing::TestWithParam<Norm> {};

TEST_P(RowMutation, TheRightBackwardPasses) {
  const GradcheckResult result =
      gradcheck(mutant(GetParam(), Fault::None), inputs_of(GetParam()), {.tolerance = 1e-8});
  EXPECT_TRUE(result.ok) << result.message;
}

TEST_P(RowMutation, EveryWrongBackwardIsRejected) {
  for (const Fault fault : faults_of(GetParam())) {
    const GradcheckResult result =
        gradcheck(mutant(GetParam(), fault), inputs_of(GetParam()), {.tolerance = 1e-8});
    EXPECT_FALSE(result.ok) << "fault " << int(fault) << " passed, error " << result.error;
  }
}

TEST_P(RowMutation, ABackwardOfConstantsIsRejectedInSecondOrder) {
  const Norm norm = GetParam();
  EXPECT_FALSE(
      gradcheck_second(mutant(norm, Fault::None), inputs_of(norm), {.tolerance = 1e-6}).ok);
  const TensorFunction right = [norm](std::span<const Tensor> in) { return forward(norm, in); };
  const GradcheckResult same = gradcheck_second(right, inputs_of(norm), {.tolerance = 1e-6});
  EXPECT_TRUE(same.ok) << same.message;
}

std::string name_of(const testing::TestParamInfo<Norm>& info) {
  static constexpr std::array Names{"Partial", "Scale", "L2", "L2Clamped", "Tanh", "Erf"};
  return Names.at(static_cast<std::size_t>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Norms, RowMutation,
                         testing::Values(Norm::Partial, Norm::Scale, Norm::L2, Norm::L2Clamped,
                                         Norm::Tanh, Norm::Erf),
                         name_of);

}  // namespace
}  // namespace steady
