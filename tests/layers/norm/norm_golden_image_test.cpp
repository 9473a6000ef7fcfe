#include <gtest/gtest.h>

#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/group_norm.hpp>

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

}  // namespace
}  // namespace steady
