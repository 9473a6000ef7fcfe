#include <gtest/gtest.h>

#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/group_norm.hpp>
#include <steadygrad/layers/norm/instance_norm.hpp>
#include <steadygrad/layers/norm/local_response_norm.hpp>

#include "tests/support/golden.hpp"

// The norms of images against PyTorch's values, in float64 and float32: PyTorch has the channels
// first.

namespace steady {
namespace {

using namespace testing_support;

using Norm = std::function<Tensor(const Tensor& x, const Tensor& weight, const Tensor& bias)>;

/// y and every gradient of the case; x, weight and bias as leaves, features last.
void expect_image(const GoldenCase& c, const Norm& norm) {
  const double tolerance = c.path().find("offset1e4") != std::string::npos ? 1e-9 : 1e-10;
  for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
    SCOPED_TRACE(c.path() + " in " + std::string(to_string(dtype)));
    const auto read = [&](const std::string& name) { return c.tensor(name).detached_copy(dtype); };
    const Tensor x = nchw_to_nhwc(read("in/x")).set_requires_grad();
    Tensor w, b;
    if (c.has("param/weight")) w = read("param/weight").set_requires_grad();
    if (c.has("param/bias")) b = read("param/bias").set_requires_grad();
    Tape tape;
    const Tensor y = norm(x, w, b);
    const Gradients g = tape.backward(y, {.cotangent = nchw_to_nhwc(read("grad_out/y"))});
    expect_close(nhwc_to_nchw(y), c, "out/y", tolerance);
    expect_close(nhwc_to_nchw(g[x]), c, "grad/x", tolerance);
    if (w.defined()) expect_close(g[w], c, "grad/weight", tolerance);
    if (b.defined()) expect_close(g[b], c, "grad/bias", tolerance);
  }
}

TEST(GroupNormGolden, EveryCase) {
  const std::vector<GoldenCase> cases = Golden("norms.h5").cases("group_norm");
  EXPECT_EQ(cases.size(), 15U);
  for (const GoldenCase& c : cases) {
    expect_image(c, [&](const Tensor& x, const Tensor& w, const Tensor& b) {
      return group_norm(x, c.attribute_int("num_groups"), w, b, c.attribute_double("eps"));
    });
  }
}

void expect_tracked(InstanceNorm& norm, const GoldenCase& c) {
  for (const char* name : {"running_mean", "running_var", "num_batches_tracked"}) {
    for (const NamedTensor& t : norm.state()) {
      if (t.name == name) expect_close(t.value, c, "state_after/" + std::string(name));
    }
  }
}

TEST(InstanceNormGolden, EveryCase) {
  const std::vector<GoldenCase> cases = Golden("norms.h5").cases("instance_norm");
  EXPECT_EQ(cases.size(), 8U);
  for (const GoldenCase& c : cases) {
    const bool tracked = c.attribute_int("track_running_stats") == 1;
    expect_image(c, [&](const Tensor& x, const Tensor& w, const Tensor& b) {
      InstanceNorm norm({.features = x.dim(-1),
                         .eps = c.attribute_double("eps"),
                         .affine = w.defined(),
                         .track_running_stats = tracked,
                         .momentum = c.attribute_double("momentum", 0.1)});
      norm.to(x.dtype());
      norm.train(c.attribute_int("training") == 1);
      if (w.defined()) {
        norm.weight = w;  // the leaves whose gradients are compared
        norm.bias = b;
      }
      if (tracked) {
        norm.running_mean.copy_from(c.tensor("state_before/running_mean").detached_copy(x.dtype()));
        norm.running_var.copy_from(c.tensor("state_before/running_var").detached_copy(x.dtype()));
        norm.num_batches_tracked.copy_from(c.tensor("state_before/num_batches_tracked"));
      }
      const Tensor y = norm(x);
      if (tracked) expect_tracked(norm, c);
      return y;
    });
  }
}

TEST(LocalResponseNormGolden, EveryCase) {
  const std::vector<GoldenCase> cases = Golden("norms.h5").cases("local_response_norm");
  EXPECT_EQ(cases.size(), 4U);
  for (const GoldenCase& c : cases) {
    expect_image(c, [&](const Tensor& x, const Tensor&, const Tensor&) {
      return local_response_norm(x, {.size = c.attribute_int("size"),
                                     .alpha = c.attribute_double("alpha"),
                                     .beta = c.attribute_double("beta"),
                                     .k = c.attribute_double("k")});
    });
  }
}

}  // namespace
}  // namespace steady
