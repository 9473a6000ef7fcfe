#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <cmath>
#include <functional>
#include <memory>
#include <steadygrad/core/anomaly.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/path.hpp>
#include <steadygrad/core/tape.hpp>
#include <thread>
#include <vector>

#include "tests/support/sanitizer.hpp"

namespace steady {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Operations of the tests' own, float64 only, so that the tape is tested by itself.

Tensor map(const Tensor& x, double (*f)(double)) {
  Tensor y = Tensor::empty(x.shape(), Dtype::F64);
  const auto out = y.mutable_data<double>("map");
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = f(x.data<double>()[i]);
  return y;
}

Tensor multiply(const Tensor& a, const Tensor& b) {
  Tensor y = Tensor::empty(a.shape(), Dtype::F64);
  const auto out = y.mutable_data<double>("multiply");
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = a.data<double>()[i] * b.data<double>()[i];
  return record("multiply", y, {a, b}, {a, b}, [](BackwardCall& call) {
    call.give(0, [&] { return multiply(call.grad(), call.saved(1)); });
    call.give(1, [&] { return multiply(call.grad(), call.saved(0)); });
  });
}

Tensor exponential(const Tensor& x) {
  const Tensor y = map(x, [](double v) { return std::exp(v); });
  return record("exp", y, {x}, {y},
                [](BackwardCall& call) { call.give(0, multiply(call.grad(), call.saved(0))); });
}

Tensor total(const Tensor& x);

Tensor spread(const Tensor& x, const Shape& shape) {
  return record("spread", Tensor::full(shape, x.item(), Dtype::F64), {x}, {},
                [](BackwardCall& call) { call.give(0, total(call.grad())); });
}

Tensor total(const Tensor& x) {
  double sum = 0;
  for (const double v : x.data<double>()) sum += v;
  return record(
      "total", Tensor::scalar(sum, Dtype::F64), {x}, {},
      [shape = x.shape()](BackwardCall& call) { call.give(0, spread(call.grad(), shape)); });
}

Tensor leaf(std::initializer_list<double> values) {
  return Tensor::of({static_cast<std::int64_t>(values.size())}, values, Dtype::F64)
      .set_requires_grad();
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no exception";
}

TEST(Tape, RecordsOnlyWhileAlive) {
  const Tensor x = leaf({1, 2});
  const Tensor before = multiply(x, x);
  Tape tape;
  EXPECT_TRUE(recording());
  const Tensor y = total(multiply(x, x));
  const Gradients g = tape.backward(y);
  EXPECT_THAT(g[x].data<double>(), ElementsAre(2, 4));
  EXPECT_FALSE(recording());  // backward ended it
  EXPECT_FALSE(needs_gradient(before));
}

TEST(Tape, LeafUsedOnSeveralPathsAddsUp) {
  const Tensor x = leaf({0.5});
  Tape tape;
  const Tensor y = multiply(multiply(x, x), exponential(x));
  const Gradients g = tape.backward(total(y));
  EXPECT_NEAR(g[x].item(), (2 * 0.5 + 0.25) * std::exp(0.5), 1e-15);
}

TEST(Tape, TiedLeavesAreOneByStorage) {  // CASES AG-08
  const Tensor w = leaf({3});
  const Tensor tied = w;
  Tape tape;
  const Gradients g = tape.backward(total(multiply(w, tied)));
  EXPECT_EQ(g.size(), 1U);
  EXPECT_EQ(g[tied].item(), 6);
}

TEST(Tape, GradientsOwnTheirMemoryAlone) {
  const Tensor a = leaf({1, 2});
  const Tensor b = leaf({3, 4});
  Tape tape;
  const Tensor sum =
      record("sum of two", multiply(a, b).detached_copy(), {a, b}, {}, [](BackwardCall& call) {
        call.give(0, call.grad());
        call.give(1, call.grad());
      });
  Gradients g = tape.backward(total(sum));
  EXPECT_FALSE(g[a].shares_storage_with(g[b]));
  g.find(a)->mutable_data<double>()[0] = 99;
  EXPECT_EQ(g[b].data<double>()[0], 1);
  const Gradients copy = g;
  EXPECT_FALSE(copy[a].shares_storage_with(g[a]));
}

TEST(Tape, SecondDerivativeThroughRecordedBackward) {
  const Tensor x = leaf({0.3, -0.7});
  Tape tape;
  const Tensor y = total(multiply(exponential(x), multiply(x, x)));
  const Gradients first = tape.backward(y, {.record = true});
  const Gradients second = tape.backward(total(first[x]));
  for (std::size_t i = 0; i < 2; ++i) {
    const double v = x.data<double>()[i];
    EXPECT_NEAR(first[x].data<double>()[i], std::exp(v) * (v * v + 2 * v), 1e-15);
    EXPECT_NEAR(second[x].data<double>()[i], std::exp(v) * (v * v + 4 * v + 2), 1e-14);
  }
}

TEST(Tape, OverwrittenSavedTensorIsRefusedByName) {  // CASES AG-01
  const Tensor x = leaf({0, 1});
  {
    Tape tape;
    Tensor y = exponential(x);
    const Tensor loss = total(y);
    for (double& v : y.mutable_data<double>("scale in place")) v *= 2;
    const std::string text = message_of([&] { (void)tape.backward(loss); });
    EXPECT_THAT(text, HasSubstr("exp: saved tensor 0"));
    EXPECT_THAT(text, HasSubstr("'scale in place'"));
  }
  Tape tape;
  const Gradients g = tape.backward(total(exponential(x)));
  EXPECT_DOUBLE_EQ(g[x].data<double>()[1], std::exp(1.0));
}

TEST(Tape, SecondBackwardIsRefusedUnlessKept) {  // CASES AG-05
  const Tensor x = leaf({2});
  {
    Tape tape;
    const Tensor y = exponential(x);
    (void)tape.backward(y);
    EXPECT_THAT(message_of([&] { (void)tape.backward(y); }),
                AllOf(HasSubstr("'exp'"), HasSubstr(".keep = true")));
  }
  Tape tape;
  const Tensor trunk = multiply(x, x);
  const Tensor a = exponential(trunk);
  const Tensor b = multiply(trunk, trunk);
  Gradients g = tape.backward(a, {.keep = true});
  const Gradients again = tape.backward(a, {.keep = true});
  EXPECT_EQ(g[x].item(), again[x].item());
  g += again;
  EXPECT_EQ(g[x].item(), 2 * again[x].item());
  EXPECT_DOUBLE_EQ(tape.backward(b)[x].item(), 32);
}

TEST(Tape, SavedTensorsAreFreedWhileBackwardWalks) {  // CASES AG-18
  const std::int64_t start = memory_stats().live;
  const Tensor x = Tensor::full({1000}, 0.1, Dtype::F64).set_requires_grad();
  Tape tape;
  Tensor loss = x;
  for (int i = 0; i < 10; ++i) loss = exponential(loss);
  std::vector<std::int64_t> live;
  tape.on_gradient(x, [&](const Tensor&) { live.push_back(memory_stats().live); });
  loss = total(loss);
  const std::int64_t recorded = memory_stats().live - start;
  EXPECT_GE(recorded, 11 * 8000);
  const Gradients g = tape.backward(loss);
  ASSERT_EQ(live.size(), 1U);
  EXPECT_LE(live[0] - start, 5 * 8000);
}

TEST(Tape, EntriesAndStoragesReturnToTheStart) {  // CASES AG-03
  const Tensor x = leaf({0.1, 0.2});
  const std::int64_t entries = Tape::live_entries();
  const std::int64_t blocks = memory_stats().live_blocks;
  for (int i = 0; i < 10000; ++i) {
    Tape tape;
    const Tensor y = exponential(multiply(x, x));
  }
  EXPECT_EQ(Tape::live_entries(), entries);
  EXPECT_EQ(memory_stats().live_blocks, blocks);
}

TEST(Tape, SteadyStateMapsNoMemory) {
  if (test::under_address_sanitizer()) GTEST_SKIP() << "every block comes from the system";
  const Tensor x = Tensor::full({4096}, 0.5, Dtype::F64).set_requires_grad();
  const auto step = [&] {
    Tape tape;
    (void)tape.backward(total(multiply(exponential(x), x)));
  };
  step();
  const std::int64_t mapped = memory_stats().mapped;
  for (int i = 0; i < 20; ++i) step();
  EXPECT_EQ(memory_stats().mapped, mapped);
}

void* long_chain(void*) {
  const Tensor x = leaf({1});
  const Tensor factor = Tensor::of({1}, {1.0000001}, Dtype::F64);
  Tape tape;
  Tensor y = x;
  for (int i = 0; i < 1000000; ++i) y = multiply(y, factor);
  static double gradient;
  gradient = tape.backward(y)[x].item();
  return &gradient;
}

TEST(Tape, MillionOperationsFitASmallStack) {  // CASES AG-04
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, std::size_t{256} << 10), 0);
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, &attributes, long_chain, nullptr), 0);
  void* result = nullptr;
  pthread_join(thread, &result);
  pthread_attr_destroy(&attributes);
  EXPECT_NEAR(*static_cast<double*>(result), std::pow(1.0000001, 1e6), 1e-9);
}

TEST(Tape, TensorOfAnotherTapeIsRefused) {  // CASES AG-06
  const Tensor x = leaf({1});
  Tensor kept;
  {
    Tape tape;
    kept = exponential(x);
  }
  Tape tape;
  EXPECT_THAT(message_of([&] { (void)multiply(kept, x); }), HasSubstr("detach()"));
  EXPECT_NO_THROW((void)multiply(kept.detach(), x));
}

TEST(Tape, SumsOfItemsKeepNoGraph) {  // CASES AG-06
  const Tensor x = leaf({0.1, 0.2});
  double total_loss = 0;
  std::int64_t entries = 0;
  std::int64_t blocks = 0;
  for (int step = 0; step < 2000; ++step) {
    Tape tape;
    const Tensor loss = total(multiply(exponential(x), x));
    total_loss += loss.item();
    if (step == 0) {
      entries = Tape::live_entries();
      blocks = memory_stats().live_blocks;
    }
    ASSERT_EQ(Tape::live_entries(), entries) << step;
    ASSERT_EQ(memory_stats().live_blocks, blocks) << step;
  }
  EXPECT_NEAR(total_loss, 2000 * (0.1 * std::exp(0.1) + 0.2 * std::exp(0.2)), 1e-9);
}

TEST(Tape, OutputNotOnTheTapeIsRefused) {
  const Tensor x = leaf({1});
  const Tensor y = exponential(x);
  Tape tape;
  EXPECT_THAT(message_of([&] { (void)tape.backward(y); }), HasSubstr("not on this tape"));
}

TEST(Tape, VectorOutputNeedsACotangent) {
  const Tensor x = leaf({1, 2});
  Tape tape;
  const Tensor y = exponential(x);
  EXPECT_THROW((void)tape.backward(y, {.keep = true}), ShapeError);
  EXPECT_THROW((void)tape.backward(y, {.keep = true, .cotangent = leaf({1})}), ShapeError);
  const Tensor c = Tensor::of({2}, {1, 10}, Dtype::F64);
  EXPECT_DOUBLE_EQ(tape.backward(y, {.cotangent = c})[x].data<double>()[1], 10 * std::exp(2.0));
}

TEST(Tape, OperationWithoutBackwardRefusesByName) {  // CASES AG-09
  const Tensor x = leaf({1.5});
  Tape tape;
  const Tensor y =
      record("round", map(x, [](double v) { return std::round(v); }), {x}, {}, NoBackward{});
  EXPECT_THAT(message_of([&] { (void)tape.backward(total(y)); }),
              HasSubstr("round: this operation has no backward"));
}

TEST(Tape, GradientOfAWrongShapeIsRefused) {
  const Tensor x = leaf({1, 2});
  Tape tape;
  const Tensor y = record("odd", Tensor::scalar(3, Dtype::F64), {x}, {},
                          [](BackwardCall& call) { call.give(0, call.grad()); });
  EXPECT_THAT(message_of([&] { (void)tape.backward(y); }),
              AllOf(HasSubstr("'odd'"), HasSubstr("f64 [2]"), HasSubstr("f64 []")));
}

TEST(Tape, WatchersSeeCompleteGradientsAndChangeNothing) {
  const Tensor x = leaf({2});
  std::vector<double> seen;
  const auto run = [&](bool watch) {
    Tape tape;
    const Tensor square = multiply(x, x);
    const Tensor y = multiply(square, exponential(x));
    if (watch) {
      tape.on_gradient(square, [&](const Tensor& g) { seen.push_back(g.item()); });
      tape.on_gradient(x, [&](const Tensor& g) { seen.push_back(g.item()); });
    }
    return tape.backward(total(y))[x].item();
  };
  const double plain = run(false);
  EXPECT_EQ(run(true), plain);
  EXPECT_THAT(seen, ElementsAre(std::exp(2.0), plain));
}

TEST(Tape, NestedTapesRecordInnermost) {
  const Tensor x = leaf({3});
  Tape outer;
  const Tensor y = multiply(x, x);
  {
    Tape inner;
    const Tensor z = exponential(x);
    EXPECT_DOUBLE_EQ(inner.backward(z)[x].item(), std::exp(3.0));
  }
  EXPECT_EQ(outer.backward(y)[x].item(), 6);
}

TEST(Tape, AnEndedTapeLeavesRecordingToTheOuterOne) {
  const Tensor x = leaf({3});
  Tape outer;
  Tape inner;
  EXPECT_DOUBLE_EQ(inner.backward(exponential(x))[x].item(), std::exp(3.0));
  const Tensor y = multiply(x, x);
  EXPECT_EQ(outer.backward(y)[x].item(), 6);
}

TEST(Tape, TapesMayEndInAnyOrderAndOnAnyThread) {
  const Tensor x = leaf({3});
  auto first = std::make_unique<Tape>();
  auto second = std::make_unique<Tape>();
  first.reset();
  EXPECT_EQ(second->backward(multiply(x, x))[x].item(), 6);
  second.reset();
  EXPECT_FALSE(recording());
  auto third = std::make_unique<Tape>();
  std::thread([&] { third.reset(); }).join();
  EXPECT_FALSE(recording());
  Tape tape;
  EXPECT_EQ(tape.backward(multiply(x, x))[x].item(), 6);
}

TEST(Tape, WritingToAComputedTensorIsRefusedWhenItIsUsedAgain) {
  const Tensor x = leaf({3});
  Tape tape;
  Tensor y = multiply(x, x);
  y.mutable_data<double>("rescue")[0] = 5;
  EXPECT_THAT(message_of([&] { (void)total(y); }),
              AllOf(HasSubstr("overwritten by 'rescue'"), HasSubstr("'multiply'")));
  EXPECT_THAT(message_of([&] { (void)tape.backward(y); }), HasSubstr("overwritten by 'rescue'"));
}

TEST(Tape, ScalingARecordedGradientInPlaceIsRefused) {
  const Tensor x = leaf({2});
  Tape tape;
  Gradients g = tape.backward(multiply(x, multiply(x, x)), {.record = true});
  g *= 10;
  EXPECT_THAT(message_of([&] { (void)tape.backward(g[x]); }), HasSubstr("'gradients *='"));
}

TEST(Tape, WatchersMayThrowButNotStartAnotherBackward) {
  const Tensor x = leaf({3});
  Tape tape;
  const Tensor y = multiply(x, x);
  const Tensor loss = total(y);
  std::function<void()> act;
  tape.on_gradient(y, [&](const Tensor&) { act(); });
  act = [&] { (void)tape.backward(loss); };
  EXPECT_THAT(message_of([&] { (void)tape.backward(loss, {.keep = true}); }),
              HasSubstr("a backward of this tape is running"));
  act = [&] { tape.on_gradient(x, [](const Tensor&) {}); };
  EXPECT_THAT(message_of([&] { (void)tape.backward(loss, {.keep = true}); }),
              HasSubstr("on_gradient: a backward of this tape is running"));
  act = [] { throw Error("stop"); };
  EXPECT_EQ(message_of([&] { (void)tape.backward(loss, {.keep = true}); }), "stop");
  act = [] {};
  EXPECT_EQ(tape.backward(loss)[x].item(), 6);
}

TEST(Tape, ThreadsHaveTapesOfTheirOwn) {
  const Tensor x = leaf({3});
  Tape tape;
  bool elsewhere = true;
  std::thread([&] { elsewhere = recording(); }).join();
  EXPECT_FALSE(elsewhere);
  EXPECT_TRUE(recording());
}

TEST(Tape, NoRecordPauses) {
  const Tensor x = leaf({3});
  Tape tape;
  {
    const NoRecord pause;
    EXPECT_FALSE(needs_gradient(multiply(x, x)));
  }
  EXPECT_TRUE(needs_gradient(multiply(x, x)));
}

TEST(Anomaly, NamesTheFirstProducerForwardAndBackward) {  // CASES AG-16
  const Tensor x = leaf({0, 1});
  const auto logarithm = [](const Tensor& t) {
    return record(
        "log", map(t, [](double v) { return std::log(v); }), {t}, {t}, [](BackwardCall& call) {
          call.give(0, multiply(call.grad(), map(call.saved(0), [](double v) { return 1 / v; })));
        });
  };
  const auto root = [](const Tensor& t) {
    return record(
        "sqrt", map(t, [](double v) { return std::sqrt(v); }), {t}, {t}, [](BackwardCall& call) {
          call.give(0, multiply(call.grad(),
                                map(call.saved(0), [](double v) { return 0.5 / std::sqrt(v); })));
        });
  };
  {
    const AnomalyMode anomaly;
    const PathScope block("block3");
    const PathScope norm("norm1");
    EXPECT_THAT(message_of([&] { (void)multiply(logarithm(x), x); }),
                AllOf(HasSubstr("in 'block3.norm1': log: forward"), HasSubstr("0 NaN and 1 inf")));
    Tape tape;
    const Tensor loss = total(root(x));
    EXPECT_THAT(message_of([&] { (void)tape.backward(loss); }),
                HasSubstr("in 'block3.norm1': sqrt: backward"));
  }
  {
    const AnomalyMode nan_only({.nan = true, .inf = false});
    EXPECT_THAT(message_of([&] { (void)multiply(logarithm(x), x); }), HasSubstr("multiply: "));
    const Tensor bad = leaf({NAN});
    EXPECT_THAT(message_of([&] { (void)exponential(bad); }), HasSubstr("came in from outside"));
  }
  EXPECT_NO_THROW((void)multiply(logarithm(x), x));  // the guard restored the old setting
}

TEST(Anomaly, FindsASumOfGradientsThatOverflows) {
  const AnomalyMode anomaly;
  const Tensor x = leaf({1e-10});
  const Tensor large = Tensor::of({1}, {1.7e308}, Dtype::F64);
  Tape tape;
  const PathScope path("block");
  const Tensor y = exponential(x);
  const Tensor first = multiply(y, large);
  const Tensor second = multiply(y, large);
  const std::vector<Tensor> outputs{first, second};
  const std::vector<Tensor> ones(2, Tensor::ones({1}, Dtype::F64));
  EXPECT_THAT(message_of([&] { (void)tape.backward(outputs, ones); }),
              HasSubstr("in 'block': multiply: backward produced values that are not finite"));
}

}  // namespace
}  // namespace steady
