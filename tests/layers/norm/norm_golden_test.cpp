#include <gtest/gtest.h>

#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/group_norm.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>

#include "tests/support/golden.hpp"

// Against PyTorch's values, in float64 and float32.

namespace steady {
namespace {

using namespace testing_support;

Shape normalized_shape(const GoldenCase& c) {
  const std::vector<std::int64_t> extents = c.attribute_ints("normalized_shape");
  return Shape(std::span<const std::int64_t>(extents));
}

/// Kernels of the form x * rstd - mean * rstd lose some digits far from zero.
double tolerance_of(const GoldenCase& c) {
  return c.path().find("offset1e4") != std::string::npos ? 1e-9 : 1e-10;
}

TEST(LayerNormGolden, EveryCase) {
  for (const GoldenCase& c : Golden("norms.h5").cases("layer_norm")) {
    expect_golden(
        c,
        [&](GoldenInputs& in) {
          return layer_norm(in.at("x"), normalized_shape(c), in["weight"], in["bias"],
                            c.attribute_double("eps"));
        },
        tolerance_of(c));
  }
}

TEST(RmsNormGolden, EveryCase) {
  for (const GoldenCase& c : Golden("norms.h5").cases("rms_norm")) {
    expect_golden(
        c,
        [&](GoldenInputs& in) {
          return rms_norm(in.at("x"), normalized_shape(c), in["weight"], c.attribute_double("eps"),
                          c.attribute_int("weight_offset") == 1);
        },
        tolerance_of(c));
  }
}

/// Group normalization with one group is LayerNorm over whole samples.
TEST(LayerNormGolden, OverSampleIsGroupNormWithOneGroup) {
  int cases = 0;
  for (const GoldenCase& c : Golden("norms.h5").cases("group_norm")) {
    if (c.attribute_int("num_groups") != 1) continue;
    ++cases;
    for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
      const auto read = [&](const std::string& name) {
        return c.tensor(name).detached_copy(dtype);
      };
      const Tensor x = nchw_to_nhwc(read("in/x")).set_requires_grad();
      Tensor w, b;
      if (c.has("param/weight")) w = read("param/weight").set_requires_grad();
      if (c.has("param/bias")) b = read("param/bias").set_requires_grad();
      Tape tape;
      const Tensor y = layer_norm_over_sample(x, w, b, c.attribute_double("eps"));
      const Gradients g = tape.backward(y, {.cotangent = nchw_to_nhwc(read("grad_out/y"))});
      const double tolerance = tolerance_of(c);
      expect_close(nhwc_to_nchw(y), c, "out/y", tolerance);
      expect_close(nhwc_to_nchw(g[x]), c, "grad/x", tolerance);
      if (w.defined()) expect_close(g[w], c, "grad/weight", tolerance);
      if (b.defined()) expect_close(g[b], c, "grad/bias", tolerance);
    }
  }
  EXPECT_GT(cases, 0);
}

std::unique_ptr<BatchNorm> batch_norm_of(const GoldenCase& c, Dtype dtype) {
  const bool cumulative = c.attribute_string("momentum_mode") == "cumulative";
  auto norm = std::make_unique<BatchNorm>(BatchNorm::Options{
      .features = c.tensor("in/x").dim(1),
      .eps = c.attribute_double("eps"),
      .momentum = cumulative ? std::nullopt : std::optional(c.attribute_double("momentum")),
      .affine = c.attribute_int("affine") == 1,
      .track_running_stats = c.attribute_int("track_running_stats") == 1});
  norm->to(dtype);
  return norm;
}

/// One forward and backward of `norm`, everything compared with the case.
void expect_batch_norm(BatchNorm& norm, const GoldenCase& c, Dtype dtype) {
  SCOPED_TRACE(c.path() + " in " + std::string(to_string(dtype)));
  const double tolerance = tolerance_of(c);
  const auto read = [&](const std::string& name) { return c.tensor(name).detached_copy(dtype); };
  const Tensor x = nchw_to_nhwc(read("in/x")).set_requires_grad();
  if (norm.o.affine) {
    norm.weight.copy_from(read("param/weight"));
    norm.bias.copy_from(read("param/bias"));
  }
  norm.train(c.attribute_int("training") == 1);
  Tape tape;
  const Tensor y = norm(x);
  const Gradients g = tape.backward(y, {.cotangent = nchw_to_nhwc(read("grad_out/y"))});
  expect_close(nhwc_to_nchw(y), c, "out/y", tolerance);
  expect_close(nhwc_to_nchw(g[x]), c, "grad/x", tolerance);
  if (norm.o.affine) {
    expect_close(g[norm.weight], c, "grad/weight", tolerance);
    expect_close(g[norm.bias], c, "grad/bias", tolerance);
  }
  if (norm.o.track_running_stats) {
    expect_close(norm.running_mean, c, "state_after/running_mean", tolerance);
    expect_close(norm.running_var, c, "state_after/running_var", tolerance);
    expect_close(norm.num_batches_tracked, c, "state_after/num_batches_tracked");
  }
}

void set_state(BatchNorm& norm, const GoldenCase& c, Dtype dtype) {
  if (!norm.o.track_running_stats) return;
  norm.running_mean.copy_from(c.tensor("state_before/running_mean").detached_copy(dtype));
  norm.running_var.copy_from(c.tensor("state_before/running_var").detached_copy(dtype));
  norm.num_batches_tracked.copy_from(c.tensor("state_before/num_batches_tracked"));
}

TEST(BatchNormGolden, EveryCase) {
  for (const GoldenCase& c : Golden("norms.h5").cases("batch_norm")) {
    if (c.has("step_0")) continue;
    for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
      const auto norm = batch_norm_of(c, dtype);
      set_state(*norm, c, dtype);
      expect_batch_norm(*norm, c, dtype);
    }
  }
}

TEST(BatchNormGolden, FiveStepsAndAnEvaluation) {
  int sequences = 0;
  for (const GoldenCase& c : Golden("norms.h5").cases("batch_norm")) {
    if (!c.has("step_0")) continue;
    ++sequences;
    for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
      const auto norm = batch_norm_of(c.group("step_0"), dtype);
      set_state(*norm, c.group("step_0"), dtype);
      for (int step = 0; step < 5; ++step) {
        expect_batch_norm(*norm, c.group("step_" + std::to_string(step)), dtype);
      }
      expect_batch_norm(*norm, c.group("eval_after"), dtype);
    }
  }
  EXPECT_EQ(sequences, 2);
}

TEST(BatchNormGolden, MomentsOfTheBatch) {
  for (const GoldenCase& c : Golden("norms.h5").cases("batch_norm")) {
    if (!c.has("saved/batch_mean")) continue;
    const BatchNormResult r = batch_norm(nchw_to_nhwc(c.tensor("in/x")));
    Tensor mean = Tensor::empty({std::ssize(r.moments)}, Dtype::F64);
    Tensor biased = mean.detached_copy(), unbiased = mean.detached_copy();
    for (std::size_t i = 0; i < r.moments.size(); ++i) {
      mean.mutable_data<double>()[i] = r.moments[i].mean;
      biased.mutable_data<double>()[i] = r.moments[i].variance();
      unbiased.mutable_data<double>()[i] = r.moments[i].unbiased_variance();
    }
    expect_close(mean, c, "saved/batch_mean");
    expect_close(biased, c, "saved/batch_var_biased");
    expect_close(unbiased, c, "saved/batch_var_unbiased");
  }
}

/// The norm of a double_backward case, feature last; undefined for another norm.
Tensor apply(const GoldenCase& c, const Tensor& x, const Tensor& w, const Tensor& b) {
  const std::string of = c.attribute_string("double_backward_of");
  const double eps = c.attribute_double("eps");
  if (of == "batch_norm") return batch_norm(x, w, b, eps).y;
  if (of == "group_norm") return group_norm(x, c.attribute_int("num_groups"), w, b, eps);
  if (of == "layer_norm") return layer_norm(x, normalized_shape(c), w, b, eps);
  if (of == "rms_norm") {
    return rms_norm(x, normalized_shape(c), w, eps, c.attribute_int("weight_offset") == 1);
  }
  return {};
}

void expect_second_derivatives(const GoldenCase& c, Dtype dtype) {
  SCOPED_TRACE(c.path() + " in " + std::string(to_string(dtype)));
  const bool image = c.tensor("in/x").rank() == 4;
  const auto read = [&](const std::string& name) {
    const Tensor t = c.tensor(name).detached_copy(dtype);
    return image && t.rank() == 4 ? nchw_to_nhwc(t) : t;
  };
  const auto expect = [&](const Tensor& got, const std::string& name) {
    expect_close(image && got.rank() == 4 ? nhwc_to_nchw(got) : got, c, name);
  };
  std::map<std::string, Tensor> leaves{{"x", read("in/x").set_requires_grad()}};
  for (const std::string& name : c.datasets("param")) {
    leaves[name] = read("param/" + name).set_requires_grad();
  }
  const Tensor dy = read("grad_out/y").set_requires_grad();
  Tape tape;
  const Tensor y = apply(c, leaves["x"], leaves["weight"], leaves["bias"]);
  expect(y, "out/y");
  const Gradients first = tape.backward(y, {.record = true, .cotangent = dy});
  std::vector<Tensor> outputs, projections;
  for (const std::string& name : c.datasets("first")) {
    expect(first[leaves[name]], "first/" + name);
    if (!c.has("proj/" + name)) continue;
    outputs.push_back(first[leaves[name]]);
    projections.push_back(read("proj/" + name));
  }
  const Gradients second = tape.backward(outputs, projections);
  expect(second[leaves["x"]], "grad/x");
  expect(second[leaves["weight"]], "grad/weight");
  expect(second[dy], "grad/dy");
}

TEST(NormGolden, SecondDerivatives) {
  int cases = 0;
  for (const GoldenCase& c : Golden("norms.h5").cases("double_backward")) {
    ++cases;
    for (const Dtype dtype : {Dtype::F64, Dtype::F32}) expect_second_derivatives(c, dtype);
  }
  EXPECT_EQ(cases, 12);
}

}  // namespace
}  // namespace steady
