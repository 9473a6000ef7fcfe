#include <gtest/gtest.h>

#include <array>
#include <ostream>
#include <steadygrad/core/gradcheck.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/group_norm.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>

#include "tests/layers/norm/norm_testing.hpp"

// Norms with the library's forward and a backward written here, right or with one fault. The check
// that guards the library must pass the right one and reject every fault.

namespace steady {
namespace {

using namespace norm_testing;

enum class Norm { Layer, LayerOverSample, Group, Rms, RmsUnitOffset, BatchTrain, BatchEval };
enum class Fault {
  None,
  NoMeanTerm,         // dx without mean(dxhat)
  NoProjectionTerm,   // dx without xhat * mean(dxhat * xhat)
  SumForMean,         // the projection summed over the set instead of averaged
  NoGain,             // dx from dy instead of dy * gain
  GainTwice,          // dx multiplied by the gain again
  EpsOutside,         // 1 / (sqrt(var) + eps)
  Unbiased,           // var divided by n - 1
  NoRstd,             // dx without the factor rstd
  WeightWithoutXhat,  // dweight = sum(dy)
  WeightWithX,        // dweight = sum(dy * x)
  BiasAveraged,       // dbias = mean(dy)
  SubtractsMean,      // RMS taken for LayerNorm
  OtherOffset,        // weight taken for 1 + weight, or the reverse
  OtherBranch,        // eval's backward in train mode, or the reverse
};

constexpr double Eps = 0.3;  // large enough for its place to matter

constexpr std::size_t Groups = 2;

/// Sets of `count` elements that share a statistic: pieces of `run` neighbours, `jump` apart. The
/// sets lie side by side inside a block of `outer` elements, `inner` of them.
struct Sets {
  std::size_t sets, count, run, jump, inner, outer, affine;
  [[nodiscard]] std::size_t at(std::size_t s, std::size_t i) const {
    return s / inner * outer + s % inner * run + i / run * jump + i % run;
  }
  /// Which gain element i of set s uses.
  [[nodiscard]] std::size_t gain(std::size_t s, std::size_t i) const { return at(s, i) % affine; }
};

Sets sets_of(Norm norm, const Shape& x) {
  const auto n = static_cast<std::size_t>(x.numel());
  const auto c = static_cast<std::size_t>(x[-1]);
  const auto samples = static_cast<std::size_t>(x[0]);
  if (norm == Norm::BatchTrain || norm == Norm::BatchEval) return {c, n / c, 1, c, c, n, c};
  if (norm == Norm::LayerOverSample) {
    return {samples, n / samples, n / samples, 0, 1, n / samples, c};
  }
  if (norm == Norm::Group) {
    const std::size_t sets = samples * Groups;
    return {sets, n / sets, c / Groups, c, Groups, n / samples, c};
  }
  return {n / c, c, c, 0, 1, c, c};
}

struct Statistics {
  double mean, rstd;
};

/// Of the elements xs of one set.
Statistics statistics_of(Norm norm, Fault fault, const std::vector<double>& xs, double running_mean,
                         double running_var) {
  const bool rms = norm == Norm::Rms || norm == Norm::RmsUnitOffset;
  const double n = double(xs.size());
  const double unbiased = fault == Fault::Unbiased ? n / (n - 1) : 1;
  double mean = 0, var = 0;
  for (const double x : xs) mean += x / n;
  if (rms && fault != Fault::SubtractsMean) mean = 0;
  for (const double x : xs) var += (x - mean) * (x - mean) / n;
  if (norm == Norm::BatchEval) {
    mean = running_mean;
    var = running_var;
  }
  var *= unbiased;
  return {mean, fault == Fault::EpsOutside ? 1 / (std::sqrt(var) + Eps) : 1 / std::sqrt(var + Eps)};
}

/// dx of one set from its d = dy * gain and xhat.
std::vector<double> input_gradient(Norm norm, Fault fault, const std::vector<double>& d,
                                   const std::vector<double>& xhat, double rstd) {
  const bool rms = norm == Norm::Rms || norm == Norm::RmsUnitOffset;
  const bool constant = (norm == Norm::BatchEval) != (fault == Fault::OtherBranch);
  const double n = double(d.size());
  double mean_d = 0, mean_dx = 0;
  for (std::size_t i = 0; i < d.size(); ++i) {
    mean_d += d[i] / n;
    mean_dx += d[i] * xhat[i] / (fault == Fault::SumForMean ? 1 : n);
  }
  if (constant || fault == Fault::NoMeanTerm || (rms && fault != Fault::SubtractsMean)) mean_d = 0;
  if (constant || fault == Fault::NoProjectionTerm) mean_dx = 0;
  std::vector<double> dx(d.size());
  for (std::size_t i = 0; i < d.size(); ++i) {
    dx[i] = (d[i] - mean_d - xhat[i] * mean_dx) * (fault == Fault::NoRstd ? 1 : rstd);
  }
  return dx;
}

struct Gradient {
  Tensor x, weight, bias;
};

Gradient backward(Norm norm, Fault fault, const Tensor& x, const Tensor& weight, const Tensor& mean,
                  const Tensor& var, const Tensor& dy) {
  const Sets sets = sets_of(norm, x.shape());
  const double offset = (norm == Norm::RmsUnitOffset) != (fault == Fault::OtherOffset) ? 1 : 0;
  Gradient g{Tensor::empty(x.shape(), Dtype::F64), Tensor::zeros(weight.shape(), Dtype::F64),
             Tensor::zeros(weight.shape(), Dtype::F64)};
  const auto dw = g.weight.mutable_data<double>(), db = g.bias.mutable_data<double>();
  for (std::size_t s = 0; s < sets.sets; ++s) {
    std::vector<double> xs, dys, gain, d, xhat;
    for (std::size_t i = 0; i < sets.count; ++i) {
      xs.push_back(x.data<double>()[sets.at(s, i)]);
      dys.push_back(dy.data<double>()[sets.at(s, i)]);
      gain.push_back(weight.data<double>()[sets.gain(s, i)] + offset);
      d.push_back(dys[i] * (fault == Fault::NoGain ? 1 : gain[i]));
    }
    const std::size_t channel = s % sets.affine;
    const auto [m, rstd] =
        statistics_of(norm, fault, xs, mean.data<double>()[channel], var.data<double>()[channel]);
    for (const double value : xs) xhat.push_back((value - m) * rstd);
    const std::vector<double> dx = input_gradient(norm, fault, d, xhat, rstd);
    for (std::size_t i = 0; i < sets.count; ++i) {
      g.x.mutable_data<double>()[sets.at(s, i)] = dx[i] * (fault == Fault::GainTwice ? gain[i] : 1);
      const double factor = fault == Fault::WeightWithoutXhat ? 1
                            : fault == Fault::WeightWithX     ? xs[i]
                                                              : xhat[i];
      dw[sets.gain(s, i)] += dys[i] * factor;
      db[sets.gain(s, i)] += dys[i] / (fault == Fault::BiasAveraged ? double(sets.count) : 1);
    }
  }
  return g;
}

Tensor forward(Norm norm, const Tensor& x, const Tensor& weight, const Tensor& bias,
               const Tensor& mean, const Tensor& var) {
  switch (norm) {
    case Norm::Layer:
      return layer_norm(x, weight.shape(), weight, bias, Eps);
    case Norm::LayerOverSample:
      return layer_norm_over_sample(x, weight, bias, Eps);
    case Norm::Group:
      return group_norm(x, Groups, weight, bias, Eps);
    case Norm::Rms:
    case Norm::RmsUnitOffset:
      return rms_norm(x, weight.shape(), weight, Eps, norm == Norm::RmsUnitOffset);
    case Norm::BatchTrain:
      return batch_norm(x, weight, bias, Eps).y;
    case Norm::BatchEval:
      return batch_norm_eval(x, mean, var, weight, bias, Eps);
  }
  return {};
}

/// The norm with the backward above. inputs: x, weight, bias (undefined for RMS), mean, var.
TensorFunction mutant(Norm norm, Fault fault) {
  return [norm, fault](std::span<const Tensor> in) {
    const Tensor y = forward(norm, in[0].detach(), in[1].detach(),
                             in[2].defined() ? in[2].detach() : Tensor(), in[3], in[4]);
    return record("mutant", y, {in[0], in[1], in[2]}, {in[0], in[1], in[3], in[4]},
                  [norm, fault](BackwardCall& call) {
                    const Gradient g = backward(norm, fault, call.saved(0), call.saved(1),
                                                call.saved(2), call.saved(3), call.grad());
                    call.give(0, g.x);
                    call.give(1, g.weight);
                    call.give(2, g.bias);
                  });
  };
}

std::vector<Tensor> inputs_of(Norm norm) {
  const bool rms = norm == Norm::Rms || norm == Norm::RmsUnitOffset;
  const std::int64_t c = norm == Norm::Group ? 4 : 3;
  const Tensor bias = noise({c}, "bias").set_requires_grad();
  return {noise({2, 2, c}, "x", 0.5).set_requires_grad(), noise({c}, "weight").set_requires_grad(),
          rms ? Tensor() : bias, noise({c}, "mean"),
          generate({c}, [](double i) { return 0.5 + 0.75 * i; })};
}

std::vector<Fault> faults_of(Norm norm) {
  std::vector<Fault> faults{Fault::NoGain,  Fault::GainTwice,         Fault::EpsOutside,
                            Fault::NoRstd,  Fault::WeightWithoutXhat, Fault::WeightWithX,
                            Fault::Unbiased};
  const auto more = [&](std::initializer_list<Fault> list) { faults.insert(faults.end(), list); };
  if (norm != Norm::BatchEval) more({Fault::NoProjectionTerm, Fault::SumForMean});
  if (norm == Norm::Rms || norm == Norm::RmsUnitOffset) {
    more({Fault::SubtractsMean, Fault::OtherOffset});
  } else {
    more({Fault::BiasAveraged});
    if (norm != Norm::BatchEval) more({Fault::NoMeanTerm});
  }
  if (norm == Norm::BatchTrain || norm == Norm::BatchEval) more({Fault::OtherBranch});
  return faults;
}

class Mutation : public testing::TestWithParam<Norm> {};

TEST_P(Mutation, TheRightBackwardPasses) {
  const Norm norm = GetParam();
  const GradcheckResult result =
      gradcheck(mutant(norm, Fault::None), inputs_of(norm), {.tolerance = 1e-8});
  EXPECT_TRUE(result.ok) << result.message;
}

TEST_P(Mutation, EveryWrongBackwardIsRejected) {
  const Norm norm = GetParam();
  ASSERT_GE(faults_of(norm).size(), 4U);
  for (const Fault fault : faults_of(norm)) {
    const GradcheckResult result =
        gradcheck(mutant(norm, fault), inputs_of(norm), {.tolerance = 1e-8});
    EXPECT_FALSE(result.ok) << "fault " << int(fault) << " passed, error " << result.error;
  }
}

/// Right first derivatives whose backward the tape cannot see: the second ones are missing.
TEST_P(Mutation, ABackwardOfConstantsIsRejectedInSecondOrder) {  // CASES LN-18
  const Norm norm = GetParam();
  const GradcheckResult result =
      gradcheck_second(mutant(norm, Fault::None), inputs_of(norm), {.tolerance = 1e-6});
  EXPECT_FALSE(result.ok);
  const TensorFunction right = [norm](std::span<const Tensor> in) {
    return forward(norm, in[0], in[1], in[2], in[3], in[4]);
  };
  const GradcheckResult same = gradcheck_second(right, inputs_of(norm), {.tolerance = 1e-6});
  EXPECT_TRUE(same.ok) << same.message;
}

std::string name_of(const testing::TestParamInfo<Norm>& info) {
  static constexpr std::array Names{"Layer",         "LayerOverSample", "Group",    "Rms",
                                    "RmsUnitOffset", "BatchTrain",      "BatchEval"};
  return Names.at(static_cast<std::size_t>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Norms, Mutation,
                         testing::Values(Norm::Layer, Norm::LayerOverSample, Norm::Group, Norm::Rms,
                                         Norm::RmsUnitOffset, Norm::BatchTrain, Norm::BatchEval),
                         name_of);

}  // namespace
}  // namespace steady
