#include <gtest/gtest.h>

#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/dynamic_tanh.hpp>
#include <steadygrad/layers/norm/l2_normalize.hpp>
#include <steadygrad/layers/norm/scale_norm.hpp>

#include "tests/support/golden.hpp"

// The row-wise norms beside layer and rms against PyTorch's values, in float64 and float32.

namespace steady {
namespace {

using namespace testing_support;

TEST(ScaleNormGolden, EveryCase) {
  const std::vector<GoldenCase> cases = Golden("norms.h5").cases("scale_norm");
  EXPECT_EQ(cases.size(), 2U);
  for (const GoldenCase& c : cases) {
    expect_golden(c, [&](GoldenInputs& in) {
      const Tensor& x = in.at("x");
      return scale_norm(x, {x.dim(-1)}, in.at("g"), c.attribute_double("eps"));
    });
  }
}

TEST(L2NormalizeGolden, EveryCase) {
  const std::vector<GoldenCase> cases = Golden("norms.h5").cases("l2_normalize");
  EXPECT_EQ(cases.size(), 3U);
  for (const GoldenCase& c : cases) {
    const bool channels = c.attribute_int("dim") == 1;
    for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
      SCOPED_TRACE(c.path() + " in " + std::string(to_string(dtype)));
      const auto read = [&](const std::string& name) {
        const Tensor t = c.tensor(name).detached_copy(dtype);
        return channels ? nchw_to_nhwc(t) : t;
      };
      const Tensor x = read("in/x").set_requires_grad();
      Tape tape;
      const Tensor y = l2_normalize(x, {x.dim(-1)}, c.attribute_double("eps"));
      const Gradients g = tape.backward(y, {.cotangent = read("grad_out/y")});
      expect_close(channels ? nhwc_to_nchw(y) : y, c, "out/y");
      expect_close(channels ? nhwc_to_nchw(g[x]) : g[x], c, "grad/x");
    }
  }
}

TEST(DynamicTanhGolden, EveryCase) {
  const std::vector<GoldenCase> cases = Golden("norms.h5").cases("dynamic_tanh");
  EXPECT_EQ(cases.size(), 2U);
  for (const GoldenCase& c : cases) {
    expect_golden(c, [](GoldenInputs& in) {
      const Tensor& x = in.at("x");
      return dynamic_tanh(x, {x.dim(-1)}, in.at("alpha"), in.at("weight"), in.at("bias"));
    });
  }
}

}  // namespace
}  // namespace steady
