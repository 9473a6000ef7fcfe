#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/optimizer.hpp>

#include "kernel_test.hpp"

namespace steady::kernels {
namespace {

using test::random_values;
using test::unwritten;

/// Three steps in double by the textbook, against the kernel in T.
template <class T>
void expect_steps(SgdStep step, double tolerance) {
  auto p = random_values<T>(1003, 1);
  auto buf = unwritten<T>(1003);
  std::vector<double> want(p.begin(), p.end());
  std::vector<double> b(p.size());
  for (unsigned t = 0; t < 3; ++t) {
    const auto g = random_values<T>(1003, 2 + t);
    step.first = t == 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double d = static_cast<double>(g[i]) + step.weight_decay * want[i];
      b[i] = t == 0 ? d : step.momentum * b[i] + (1 - step.dampening) * d;
      double move = d;
      if (step.momentum != 0) move = step.nesterov ? d + step.momentum * b[i] : b[i];
      want[i] -= step.lr * move;
    }
    sgd_update<T>(step, p, buf, g);
  }
  test::expect_near(p, want, tolerance);
}

TEST(SgdKernel, FollowsTheUpdateRule) {
  for (const SgdStep& step :
       std::vector<SgdStep>{{.lr = 0.1},
                            {.lr = 0.1, .weight_decay = 0.01},
                            {.lr = 0.1, .momentum = 0.9},
                            {.lr = 0.1, .momentum = 0.9, .dampening = 0.3},
                            {.lr = 0.1, .momentum = 0.9, .nesterov = true},
                            {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}}) {
    expect_steps<float>(step, 1e-6);
    expect_steps<double>(step, 1e-14);
  }
}

TEST(SgdKernel, AnyNumberOfThreadsGivesTheSameBits) {
  const auto start = random_values<float>(100003, 5);
  const auto g = random_values<float>(100003, 6);
  test::expect_thread_independent([&] {
    auto p = start;
    auto buf = start;
    sgd_update<float>({.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-3}, p, buf, g);
    p.insert(p.end(), buf.begin(), buf.end());
    return p;
  });
}

TEST(SgdKernel, NeedsABufferOnlyForMomentum) {
  std::vector<float> p = {1};
  std::vector<float> none;
  const std::vector<float> g = {2};
  sgd_update<float>({.lr = 0.25}, p, none, g);
  EXPECT_EQ(p[0], 0.5F);
  EXPECT_THROW(sgd_update<float>({.lr = 0.25, .momentum = 0.9}, p, none, g), Error);
}

}  // namespace
}  // namespace steady::kernels
