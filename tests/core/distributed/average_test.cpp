#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <steadygrad/core/distributed/average.hpp>
#include <steadygrad/core/distributed/world.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/random.hpp>

#include "tests/support/message_of.hpp"
#include "tests/support/ranks.hpp"

namespace steady::distributed {
namespace {

using testing::HasSubstr;
using testing_support::message_of;
using testing_support::on_ranks;
using testing_support::rank_counts;

constexpr std::int64_t Samples = 9;

Tensor numbers(const Shape& shape, std::string_view name, Dtype dtype) {
  Random random(3, name);
  Tensor t = Tensor::empty(shape, Dtype::F64);
  for (double& v : t.mutable_data<double>()) v = double(float(random.normal()));
  return t.detached_copy(dtype);
}

Tensor rows(const Tensor& t, std::int64_t begin, std::int64_t count) {
  return dispatch_all(t.dtype(), [&]<Element T>() {
    const auto width = static_cast<std::size_t>(t.numel() / t.dim(0));
    return Tensor::from({count, t.dim(1)},
                        t.data<T>().subspan(static_cast<std::size_t>(begin) * width,
                                            static_cast<std::size_t>(count) * width));
  });
}

/// Two linear maps, of which a tape knows the gradients of a mean over rows.
struct Model {
  explicit Model(Dtype dtype)
      : first(numbers({3, 4}, "first", dtype)), second(numbers({4, 2}, "second", dtype)) {
    first.set_requires_grad();
    second.set_requires_grad();
    unused.set_requires_grad();
  }
  [[nodiscard]] std::vector<Parameter> parameters() const {
    return {{"first", first}, {"second", second}, {"unused", unused}};
  }
  [[nodiscard]] Tensor loss(const Tensor& x) const {
    const Tensor y = matmul(matmul(x, first), second);
    const Tensor all = sum(mul(y, y));
    return x.dim(0) == 0 ? all : mul(all, 1.0 / static_cast<double>(x.dim(0)));
  }
  Tensor first, second;
  Tensor unused = Tensor::zeros({2});
};

/// Where the samples of each rank begin: unequal shards, and one of them empty.
std::vector<std::vector<std::int64_t>> splits(int size) {
  if (size == 2) return {{0, 7, Samples}, {0, Samples, Samples}};
  if (size == 3) return {{0, 2, 3, Samples}, {0, 0, 4, Samples}};
  return {{0, 4, 4, 5, Samples}};
}

template <class Check>
void with_shards(Dtype dtype, const Check& check) {
  for (const int size : rank_counts()) {
    for (const std::vector<std::int64_t>& begins : splits(size)) {
      on_ranks(size, [&](Communicator& ranks) {
        const Tensor x = numbers({Samples, 3}, "x", dtype);
        const auto rank = static_cast<std::size_t>(ranks.rank());
        const Model model(dtype);
        const Gradients joined = [&] {
          Tape tape;
          return tape.backward(model.loss(x));
        }();
        check(ranks, model, rows(x, begins[rank], begins[rank + 1] - begins[rank]), joined);
      });
    }
  }
}

double difference(const Tensor& a, const Tensor& b) {
  const Tensor x = a.detached_copy(Dtype::F64), y = b.detached_copy(Dtype::F64);
  double most = 0, scale = 0;
  for (std::size_t i = 0; i < x.data<double>().size(); ++i) {
    most = std::max(most, std::abs(x.data<double>()[i] - y.data<double>()[i]));
    scale = std::max(scale, std::abs(y.data<double>()[i]));
  }
  return most / scale;
}

TEST(DistributedAverage, OfUnequalAndEmptyShardsIsTheJoinedGradient) {
  for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
    with_shards(dtype, [&](Communicator& ranks, const Model& model, const Tensor& x,
                           const Gradients& joined) {
      Tape tape;
      const Gradients g =
          average(tape.backward(model.loss(x)), model.parameters(), ranks, x.dim(0));
      const double tolerance = dtype == Dtype::F32 ? 1e-6 : 1e-15;
      EXPECT_LE(difference(g[model.first], joined[model.first]), tolerance);
      EXPECT_LE(difference(g[model.second], joined[model.second]), tolerance);
      EXPECT_FALSE(g.contains(model.unused)) << "no rank reached it";
    });
  }
}

TEST(DistributedAverage, GivesAnEmptyRankWhatTheOthersHave) {
  with_shards(Dtype::F64, [&](Communicator& ranks, const Model& model, const Tensor& x,
                              const Gradients& joined) {
    Gradients own;  // an empty rank need not run anything
    if (x.dim(0) > 0) {
      Tape tape;
      own = tape.backward(model.loss(x));
    }
    const Gradients g = average(std::move(own), model.parameters(), ranks, x.dim(0));
    EXPECT_LE(difference(g[model.first], joined[model.first]), 1e-15);
  });
}

TEST(DistributedAverage, LeavesOutWhatARankWithoutSamplesHas) {
  with_shards(Dtype::F64, [&](Communicator& ranks, const Model& model, const Tensor& x,
                              const Gradients& joined) {
    Tape tape;
    Gradients own = tape.backward(model.loss(x));
    if (x.dim(0) == 0) own *= NAN;
    const Gradients g = average(std::move(own), model.parameters(), ranks, x.dim(0));
    EXPECT_LE(difference(g[model.first], joined[model.first]), 1e-15);
  });
}

TEST(DistributedAverage, WhileBackwardRunsHasTheSameBits) {
  for (const std::int64_t bucket : {1, 64, 1 << 20}) {
    with_shards(Dtype::F32, [&](Communicator& ranks, const Model& model, const Tensor& x,
                                const Gradients& /*joined*/) {
      GradientAverager averager(model.parameters(), ranks, {.bucket_bytes = bucket});
      for (int step = 0; step < 3; ++step) {
        Tape plain;
        const Gradients want =
            average(plain.backward(model.loss(x)), model.parameters(), ranks, x.dim(0));
        Tape tape;
        const Tensor loss = model.loss(x);
        averager.watch(tape, x.dim(0));
        const Gradients got = averager.finish(tape.backward(loss));
        ASSERT_EQ(got.size(), want.size());
        for (const Gradients::Item& item : want.items()) {
          EXPECT_TRUE(
              std::ranges::equal(got[item.leaf].data<float>(), item.gradient.data<float>()));
        }
      }
    });
  }
}

TEST(DistributedAverage, HasTheSameBitsOnAllRanks) {
  with_shards(Dtype::F32, [&](Communicator& ranks, const Model& model, const Tensor& x,
                              const Gradients& /*joined*/) {
    Tape tape;
    const Gradients g = average(tape.backward(model.loss(x)), model.parameters(), ranks, x.dim(0));
    EXPECT_NO_THROW(check_same({{"first", g[model.first]}, {"second", g[model.second]}}, ranks));
  });
}

TEST(DistributedAverage, OfAllLeavesNeedsNoList) {
  for (const int size : rank_counts()) {
    on_ranks(size, [&](Communicator& ranks) {
      const Model model(Dtype::F64);
      const Tensor x = numbers({2, 3}, "x" + std::to_string(ranks.rank()), Dtype::F64);
      Tape tape, again;
      const Gradients a = average(again.backward(model.loss(x)), model.parameters(), ranks, 2);
      const Gradients b = average(tape.backward(model.loss(x)), ranks, 2);
      EXPECT_EQ(difference(a[model.first], b[model.first]), 0);
      EXPECT_THAT(message_of([&] {
                    (void)average(ranks.rank() == 0 ? Gradients() : Gradients(a), ranks, 2);
                  }),
                  HasSubstr("the list of parameters of rank 1 is not that of rank 0"));
    });
  }
}

TEST(DistributedAverage, OfNoSamplesAtAllIsNothing) {
  for (const int size : rank_counts()) {
    on_ranks(size, [&](Communicator& ranks) {
      const Model model(Dtype::F64);
      Tape tape;
      const Gradients own = tape.backward(model.loss(numbers({2, 3}, "x", Dtype::F64)));
      EXPECT_TRUE(average(own, model.parameters(), ranks, 0).empty());
      EXPECT_THROW((void)average(own, model.parameters(), ranks, -1), Error);
    });
  }
}

TEST(DistributedAverage, KeepsTheGradientsOfOtherLeaves) {
  for (const int size : rank_counts()) {
    on_ranks(size, [&](Communicator& ranks) {
      const Model model(Dtype::F64);
      const Tensor x =
          numbers({2, 3}, "x" + std::to_string(ranks.rank()), Dtype::F64).set_requires_grad();
      Tape tape, again;
      const Gradients own = again.backward(model.loss(x));
      const Gradients g = average(tape.backward(model.loss(x)), model.parameters(), ranks, 2);
      EXPECT_EQ(difference(g[x], own[x]), 0);
    });
  }
}

TEST(DistributedAverage, RefusesASecondStepBeforeTheFirstIsFinished) {
  const Model model(Dtype::F64);
  SingleProcess alone;
  GradientAverager averager(model.parameters(), alone);
  Tape tape;
  const Tensor loss = model.loss(numbers({2, 3}, "x", Dtype::F64));
  averager.watch(tape, 2);
  EXPECT_THROW(averager.watch(tape, 2), Error);
  EXPECT_TRUE(averager.finish(tape.backward(loss)).contains(model.first));
  EXPECT_THROW((void)averager.finish({}), Error);
}

TEST(DistributedState, BroadcastMakesAllRanksEqual) {
  for (const int size : rank_counts()) {
    on_ranks(size, [&](Communicator& ranks) {
      State state{{"w", Tensor::full({3}, ranks.rank())},
                  {"count", Tensor::full({}, 5.0 + ranks.rank(), Dtype::I64)}};
      EXPECT_EQ(message_of([&] { check_same(state, ranks, "after step 7"); }),
                "distributed: 'w' on rank 1 is not that of rank 0 after step 7");
      broadcast(state, ranks);
      EXPECT_NO_THROW(check_same(state, ranks));
      EXPECT_EQ(state[1].value.item(), 5);
    });
  }
}

TEST(DistributedState, BroadcastRefusesModelsThatDiffer) {
  on_ranks(2, [&](Communicator& ranks) {
    State state{{"w", Tensor::zeros({3 + ranks.rank()})}};
    EXPECT_EQ(
        message_of([&] { broadcast(state, ranks); }),
        "broadcast: the state of rank 1 is not that of rank 0: 'w f32 [4]' against 'w f32 [3]'");
  });
}

}  // namespace
}  // namespace steady::distributed
