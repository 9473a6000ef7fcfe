// BatchNorm and what follows it, a ReLU and a max pooling, in one pass: the bits of the operations
// by themselves, forward and backward, and a second derivative of their composition.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/pool.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/norm_relu.hpp>

#include "tests/layers/norm/norm_testing.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using namespace testing_support;

Tensor running(const Tensor& x) { return noise({3}, "running", 0).detached_copy(x.dtype()); }

const bool Table = register_ops(
    "BatchNormRelu",
    {
        {.name = "batch",
         .f = [](Inputs in) { return batch_norm(in[0], in[1], in[2], 1e-5, true).y; },
         .inputs = {real({3, 5, 2}), real({2}), real({2})},
         .large = {real({300, 37}), real({37}), real({37})}},
        {.name = "no_parameters",
         .f = [](Inputs in) { return batch_norm(in[0], {}, {}, 1e-5, true).y; },
         .inputs = {real({7, 3})}},
        {.name = "eval",
         .f =
             [](Inputs in) {
               return batch_norm_eval(in[0], running(in[0]), square(running(in[0])), in[1], in[2],
                                      1e-3, true);
             },
         .inputs = {real({7, 3}), real({3}), real({3})}},
        {.name = "pooled",
         .f = [](Inputs in) { return batch_norm_relu_pool(in[0], in[1], in[2], 1e-5, 2).y; },
         .inputs = {real({2, 4, 6, 2}), real({2}), real({2})},
         .large = {real({9, 28, 14, 5}), real({5}), real({5})}},
    });

/// y and the gradients of x, weight and bias, and the buffers afterwards; pooled with a kernel.
std::vector<Tensor> outcome(BatchNorm& norm, const Tensor& given, const Tensor& dy, bool fused,
                            std::int64_t kernel = 0) {
  const Tensor x = given.detached_copy().set_requires_grad();
  Tape tape;
  const Tensor y = [&] {
    if (kernel == 0) return fused ? norm_relu(norm, x) : relu(norm(x));
    return fused ? norm_relu_pool(norm, x, kernel) : max_pool2d(relu(norm(x)), kernel);
  }();
  const Gradients g = tape.backward(std::vector{y}, std::vector{dy});
  std::vector<Tensor> result{y.detach(), g[x]};
  for (const Tensor& p : {norm.weight, norm.bias})
    if (p.defined()) result.push_back(g[p]);
  if (norm.o.track_running_stats) {
    result.push_back(norm.running_mean.detached_copy());
    result.push_back(norm.running_var.detached_copy());
  }
  return result;
}

/// A norm whose gains have both signs, so that slopes do.
std::unique_ptr<BatchNorm> make(const BatchNorm::Options& options, Dtype dtype) {
  auto norm = std::make_unique<BatchNorm>(options);
  norm->to(dtype);
  for (const Parameter& p : norm->parameters()) {
    Tensor value = p.value;
    value.copy_from(noise(value.shape(), p.name, 0).detached_copy(dtype));
  }
  return norm;
}

TEST(NormRelu, HasTheBitsOfTheTwoOperationsForEveryShapeModeAndDtype) {
  // Folded lines with and without rows left over, whole lines, blocks of columns, streamed stores.
  const std::vector<std::pair<std::int64_t, std::int64_t>> shapes{
      {2, 1}, {67, 3}, {1000, 16}, {333, 64}, {70, 1500}, {70000, 64}};
  for (const Dtype dtype : {Dtype::F32, Dtype::F64})
    for (const auto& [rows, width] : shapes) {
      const Tensor x = noise({rows, width}, "x", 3).detached_copy(dtype);
      const Tensor dy = noise({rows, width}, "dy", 0).detached_copy(dtype);
      const std::vector<BatchNorm::Options> kinds{
          {.features = width},
          {.features = width, .affine = false},
          {.features = width, .bias = false},
          {.features = width, .track_running_stats = false},
          {.features = width, .sync = true},
      };
      for (const Mode mode : {Mode::Train, Mode::Eval})
        for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
          const auto separate = make(kinds[kind], dtype), fused = make(kinds[kind], dtype);
          for (BatchNorm* norm : {separate.get(), fused.get()})
            if (mode == Mode::Eval) norm->eval();
          const std::vector<Tensor> want = outcome(*separate, x, dy, false);
          const std::vector<Tensor> got = outcome(*fused, x, dy, true);
          ASSERT_EQ(got.size(), want.size());
          for (std::size_t i = 0; i < got.size(); ++i)
            EXPECT_TRUE(same_bits(got[i], want[i]))
                << rows << " x " << width << ", tensor " << i << ", kind " << kind;
        }
    }
}

TEST(NormReluPool, HasTheBitsOfTheOperationsForEveryShapeModeAndDtype) {
  struct Case {
    Shape x;
    std::int64_t kernel;
  };
  // Folded lines with and without rows left over, whole lines, blocks of columns, several chunks
  // and parts of them that begin within a band, bands larger than a part, and too large for a
  // cache; windows that leave pixels out.
  const std::vector<Case> cases{{{2, 4, 6, 1}, 2},     {{3, 9, 3, 3}, 3},    {{5, 28, 28, 16}, 2},
                                {{40, 28, 28, 64}, 2}, {{2, 6, 4, 1500}, 2}, {{7, 5, 15, 48}, 5},
                                {{2, 5, 7, 4}, 2},     {{3, 4, 4, 8}, 1},    {{2, 4, 130, 64}, 2},
                                {{2, 16, 64, 64}, 8},  {{1, 8, 80, 64}, 8},  {{2, 8, 8, 64}, 8}};
  for (const Dtype dtype : {Dtype::F32, Dtype::F64})
    for (const auto& [shape, kernel] : cases) {
      const std::int64_t width = shape[3];
      const Tensor x = noise(shape, "x", 3).detached_copy(dtype);
      const Tensor dy = noise({shape[0], shape[1] / kernel, shape[2] / kernel, width}, "dy", 0)
                            .detached_copy(dtype);
      const std::vector<BatchNorm::Options> kinds{{.features = width},
                                                  {.features = width, .affine = false},
                                                  {.features = width, .track_running_stats = false},
                                                  {.features = width, .sync = true}};
      for (const Mode mode : {Mode::Train, Mode::Eval})
        for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
          const auto separate = make(kinds[kind], dtype), fused = make(kinds[kind], dtype);
          for (BatchNorm* norm : {separate.get(), fused.get()})
            if (mode == Mode::Eval) norm->eval();
          const std::vector<Tensor> want = outcome(*separate, x, dy, false, kernel);
          const std::vector<Tensor> got = outcome(*fused, x, dy, true, kernel);
          ASSERT_EQ(got.size(), want.size());
          for (std::size_t i = 0; i < got.size(); ++i)
            EXPECT_TRUE(same_bits(got[i], want[i]))
                << describe(x) << ", kernel " << kernel << ", tensor " << i << ", kind " << kind;
        }
    }
}

/// The outcome on several threads against that on one.
void expect_same_bits_on_threads(const Tensor& x, const Tensor& dy, std::int64_t kernel = 0) {
  const int before = num_threads();
  const auto run = [&](int threads) {
    set_num_threads(threads);
    return outcome(*make({.features = x.dim(-1)}, Dtype::F32), x, dy, true, kernel);
  };
  const std::vector<Tensor> want = run(1);
  for (const int threads : {2, 3, 8}) {
    const std::vector<Tensor> got = run(threads);
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(same_bits(got[i], want[i])) << threads << " threads, tensor " << i;
  }
  set_num_threads(before);
}

TEST(NormReluPool, BitsDoNotDependOnTheThreads) {
  expect_same_bits_on_threads(noise({33, 14, 14, 48}, "x", 3).detached_copy(Dtype::F32),
                              noise({33, 7, 7, 48}, "dy", 0).detached_copy(Dtype::F32), 2);
}

/// What derives from BatchNorm computes something else.
struct Doubled : BatchNorm {
  using BatchNorm::BatchNorm;
  Tensor forward(const Tensor& x) override { return BatchNorm::forward(x) * 2.0; }
};

TEST(NormReluPool, PassesNaNAndTakesNoImagesInABackward) {
  Tensor x = noise({1, 4, 4, 2}, "x", 0).detached_copy(Dtype::F32);
  x.mutable_data<float>()[2] = std::numeric_limits<float>::quiet_NaN();
  BatchNorm norm({.features = 2, .check_finite = false});
  const Tensor y = norm_relu_pool(norm, x, 2);
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(std::isnan(y.data<float>()[i]), i % 2 == 0) << "element " << i;

  const Tensor none = Tensor::empty({0, 4, 4, 2}).set_requires_grad();
  const Tensor weight = Tensor::ones({2}).set_requires_grad();
  Tape tape;
  const Tensor empty = batch_norm_relu_pool(none, weight, {}, 1e-5, 2).y;
  const Gradients g = tape.backward(std::vector{empty}, std::vector{Tensor::empty({0, 2, 2, 2})});
  EXPECT_EQ(g[none].shape(), none.shape());
  EXPECT_TRUE(same_bits(g[weight], Tensor::zeros({2})));
}

/// Keeps the last result that it saw.
struct Watcher : LayerObserver {
  Tensor seen;
  void on_enter(Layer&, const Tensor&) override {}
  void on_result(Layer&, const Tensor&, const Tensor& y, const Measures&) override { seen = y; }
  void on_leave(Layer&) noexcept override {}
  void on_destroy(Layer&) noexcept override {}
};

TEST(NormReluPool, ObserversSeeTheNorm) {
  BatchNorm norm({.features = 4});
  Watcher watcher;
  norm.attach(watcher);
  const Tensor x = noise({2, 4, 4, 4}, "x", 0).detached_copy(Dtype::F32);
  const Tensor y = norm_relu_pool(norm, x, 2);
  ASSERT_TRUE(watcher.seen.defined());
  EXPECT_EQ(watcher.seen.shape(), x.shape());
  EXPECT_TRUE(same_bits(max_pool2d(relu(watcher.seen), 2), y));
  norm.detach(watcher);
}

TEST(NormReluPool, TakesNormsOfEveryKindAndNoImagesAtAll) {
  LayerNorm layer({.normalized_shape = {4}});
  Doubled doubled(BatchNorm::Options{.features = 4});
  BatchNorm norm({.features = 4});
  const Tensor x = noise({2, 6, 6, 4}, "x", 0).detached_copy(Dtype::F32);
  EXPECT_TRUE(same_bits(norm_relu_pool(layer, x, 3), max_pool2d(relu(layer(x)), 3)));
  EXPECT_TRUE(same_bits(norm_relu_pool(doubled, x, 3), max_pool2d(relu(doubled(x)), 3)));
  EXPECT_EQ(norm_relu_pool(norm, Tensor::empty({0, 6, 6, 4}), 2).shape(), (Shape{0, 3, 3, 4}));
}

TEST(NormReluPool, ThrowsWhatTheOperationsThrow) {
  BatchNorm norm({.features = 4});
  const Tensor x = noise({2, 6, 6, 4}, "x", 0).detached_copy(Dtype::F32);
  EXPECT_THROW((void)norm_relu_pool(norm, x, 0), ShapeError);
  EXPECT_THROW((void)norm_relu_pool(norm, x, 7), ShapeError);
  EXPECT_THROW((void)norm_relu_pool(norm, noise({2, 6, 6, 3}, "x", 0), 2), ShapeError);
  EXPECT_THROW((void)norm_relu_pool(norm, noise({6, 4}, "x", 0), 2), ShapeError);
  EXPECT_THROW((void)norm_relu_pool(norm, Tensor{}, 2), Error);
  EXPECT_THROW((void)batch_norm_relu_pool(x, {}, {}, 1e-5, 4), ShapeError);
  EXPECT_THROW((void)batch_norm_relu_pool(x, {}, {}, 1e-5, 0), ShapeError);
}

TEST(NormRelu, PassesNaNAsReluDoes) {
  BatchNorm norm({.features = 2, .check_finite = false});
  Tensor x = noise({5, 2}, "x", 0).detached_copy(Dtype::F32);
  x.mutable_data<float>()[2] = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = norm_relu(norm, x);
  for (std::size_t i = 0; i < 10; ++i)
    EXPECT_EQ(std::isnan(y.data<float>()[i]), i % 2 == 0) << "element " << i;
}

TEST(NormRelu, BitsDoNotDependOnTheThreads) {
  const Tensor x = noise({5000, 48}, "x", 3).detached_copy(Dtype::F32);
  expect_same_bits_on_threads(x, x * 0.5);
}

TEST(NormRelu, ObserversSeeTheNorm) {
  BatchNorm norm({.features = 4});
  Watcher watcher;
  norm.attach(watcher);
  const Tensor y = norm_relu(norm, noise({6, 4}, "x", 0).detached_copy(Dtype::F32));
  ASSERT_TRUE(watcher.seen.defined());
  EXPECT_FALSE(same_bits(watcher.seen, y));
  EXPECT_TRUE(same_bits(relu(watcher.seen), y));
  norm.detach(watcher);
}

TEST(NormRelu, TakesNormsOfEveryKind) {
  LayerNorm layer({.normalized_shape = {4}});
  Doubled doubled(BatchNorm::Options{.features = 4});
  const Tensor x = noise({6, 4}, "x", 0).detached_copy(Dtype::F32);
  EXPECT_TRUE(same_bits(norm_relu(layer, x), relu(layer(x))));
  EXPECT_TRUE(same_bits(norm_relu(doubled, x), relu(doubled(x))));
}

TEST(NormRelu, ThrowsWhatTheNormThrows) {
  BatchNorm norm({.features = 4});
  EXPECT_THROW((void)norm_relu(norm, noise({6, 3}, "x", 0)), ShapeError);
  EXPECT_THROW((void)norm_relu(norm, noise({1, 4}, "x", 0).detached_copy(Dtype::F32)), ShapeError);
  EXPECT_EQ(norm.num_batches_tracked.data<std::int64_t>()[0], 0);
}

}  // namespace
}  // namespace steady
