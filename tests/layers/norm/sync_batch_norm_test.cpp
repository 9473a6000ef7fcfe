#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <steadygrad/core/distributed/average.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <steadygrad/layers/norm/sync_batch_norm.hpp>
#include <steadygrad/layers/sequential.hpp>

#include "tests/layers/norm/norm_testing.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/ranks.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using distributed::Communicator;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::message_of;
using testing_support::on_ranks;
using testing_support::rank_counts;
using Counts = std::vector<std::int64_t>;

constexpr std::int64_t Positions = 2;
constexpr std::int64_t Channels = 3;
constexpr double Eps = 0.1;  // large: its derivative shows

/// Samples of each rank: unequal, and with an empty shard.
std::vector<Counts> splits(int size) {
  if (size == 2) return {{5, 2}, {4, 0}};
  if (size == 3) return {{4, 2, 1}, {3, 0, 4}};
  return {{2, 1, 0, 4}};
}

Tensor part(const Tensor& x, const Counts& counts, int rank) {
  const auto r = counts.begin() + rank;
  const std::int64_t begin = std::accumulate(counts.begin(), r, std::int64_t{0});
  const auto width = static_cast<std::size_t>(x.numel() / x.dim(0));
  return Tensor::from({*r, x.dim(1), x.dim(2)},
                      x.data<double>().subspan(static_cast<std::size_t>(begin) * width,
                                               static_cast<std::size_t>(*r) * width));
}

/// All parts of what is cut along the samples, joined in rank order.
std::vector<double> joined(Communicator& ranks, const Tensor& mine) {
  std::vector<double> all;
  const std::string_view bytes(reinterpret_cast<const char*>(mine.data<double>().data()),
                               mine.data<double>().size_bytes());
  for (const std::string& text : ranks.all_gather(bytes)) {
    const std::size_t before = all.size();
    all.resize(before + text.size() / sizeof(double));
    if (!text.empty()) std::memcpy(all.data() + before, text.data(), text.size());
  }
  return all;
}

using Norm = std::function<Tensor(const Tensor& x, const Tensor& weight, const Tensor& bias)>;

/// J = sum(cotangent * y) over the joined batch, as data-parallel training differentiates it: rank
/// r has the mean of J's terms over its samples, and the averaging joins what the ranks find.
struct AcrossRanks {
  Counts counts;
  Tensor x =
      noise({std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), Positions, Channels},
            "x", 1.0);
  Tensor weight = noise({Channels}, "weight").set_requires_grad();
  Tensor bias = noise({Channels}, "bias").set_requires_grad();
  Tensor cotangent = noise(x.shape(), "cotangent");

  struct Values {
    double j = 0;
    std::vector<double> dx, dweight, dbias;
  };
  [[nodiscard]] Values on(const Norm& norm) const {
    Values values;
    std::mutex mutex;
    on_ranks(static_cast<int>(counts.size()), [&](Communicator& ranks) {
      Values mine = on_rank(ranks, norm);
      const std::lock_guard lock(mutex);  // of equal bits on every rank
      values = std::move(mine);
    });
    return values;
  }

  [[nodiscard]] Values on_rank(Communicator& ranks, const Norm& norm) const {
    const std::int64_t samples = counts[static_cast<std::size_t>(ranks.rank())];
    const double all = static_cast<double>(x.dim(0));
    Tensor shard = part(x, counts, ranks.rank());
    Tensor c = part(cotangent, counts, ranks.rank());
    Tensor w = weight.detached_copy(), b = bias.detached_copy();
    for (Tensor* t : {&shard, &w, &b}) t->set_requires_grad();
    Tape tape;
    const Tensor y = norm(shard, w, b);
    Values v;
    const std::vector<double> every_y = joined(ranks, y);
    for (std::size_t i = 0; i < every_y.size(); ++i)
      v.j += every_y[i] * cotangent.data<double>()[i];
    for (double& k : c.mutable_data<double>()) k *= all / static_cast<double>(samples);
    Gradients own = tape.backward(y, {.cotangent = c});
    v.dx = joined(ranks, own[shard]);
    std::size_t at = 0;
    for (const std::int64_t n : counts) {
      const auto end = at + static_cast<std::size_t>(n * Positions * Channels);
      for (; at < end; ++at) v.dx[at] *= static_cast<double>(n) / all;
    }
    const std::vector<Parameter> parameters{{"weight", w}, {"bias", b}};
    const Gradients g = distributed::average(std::move(own), parameters, ranks, samples);
    v.dweight = norm_testing::values(g[w]);
    v.dbias = norm_testing::values(g[b]);
    return v;
  }

  /// J of the joined batch in one process.
  [[nodiscard]] double in_one_process() const {
    const Tensor y = batch_norm(x, weight, bias, Eps).y;
    double j = 0;
    for (std::size_t i = 0; i < y.data<double>().size(); ++i) {
      j += y.data<double>()[i] * cotangent.data<double>()[i];
    }
    return j;
  }

  /// Largest difference between what the ranks compute, J and its gradients, and J of the joined
  /// batch and its five-point differences.
  [[nodiscard]] double error_of(const Norm& norm) {
    const Values v = on(norm);
    double most = std::abs(v.j - in_one_process());
    const auto compare = [&](Tensor& t, const std::vector<double>& gradient) {
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        const double before = t.data<double>()[i], h = 1e-3;
        const auto j = [&](double shift) {
          t.mutable_data<double>()[i] = before + shift;
          return in_one_process();
        };
        const double numeric = (8 * (j(h) - j(-h)) - (j(2 * h) - j(-2 * h))) / (12 * h);
        t.mutable_data<double>()[i] = before;
        most = std::max(most, std::abs(gradient[i] - numeric));
      }
    };
    compare(x, v.dx);
    compare(weight, v.dweight);
    compare(bias, v.dbias);
    return most;
  }
};

Tensor synchronized(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return sync_batch_norm(x, weight, bias, Eps).y;
}

/// Gathers until it forgets the other ranks, of which it then gives zeros.
struct Forgetful final : Communicator {
  explicit Forgetful(Communicator& all) : ranks(all) {}
  Communicator& ranks;
  bool forgets = false;

  [[nodiscard]] int rank() const override { return ranks.rank(); }
  [[nodiscard]] int size() const override { return ranks.size(); }
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (!forgets) return ranks.gather_bytes(mine, all);
    std::ranges::fill(all, std::byte{0});
    std::ranges::copy(mine, all.begin() + std::ssize(mine) * rank());
  }
  void broadcast_bytes(std::span<std::byte> bytes, int root) override {
    ranks.broadcast_bytes(bytes, root);
  }
  void barrier() override { ranks.barrier(); }
  std::unique_ptr<distributed::Pending> start_sum(std::span<float> values,
                                                  std::span<const double> weights) override {
    return ranks.start_sum(values, weights);
  }
  std::unique_ptr<distributed::Pending> start_sum(std::span<double> values,
                                                  std::span<const double> weights) override {
    return ranks.start_sum(values, weights);
  }
};

TEST(SyncBatchNorm, PassesGradcheckAcrossRanks) {
  for (const int size : rank_counts()) {
    for (const Counts& counts : splits(size)) {
      EXPECT_LE(AcrossRanks{counts}.error_of(synchronized), 1e-7) << size;
    }
  }
}

TEST(SyncBatchNorm, WithLocalStatisticsFailsGradcheck) {
  for (const int size : rank_counts()) {
    AcrossRanks ranks{splits(size)[0]};
    EXPECT_GE(ranks.error_of([](const Tensor& x, const Tensor& weight, const Tensor& bias) {
      return batch_norm(x, weight, bias, Eps).y;
    }),
              1e-2);
    // Statistics of all in the forward, sums of the rank alone in the backward.
    EXPECT_GE(ranks.error_of([](const Tensor& x, const Tensor& weight, const Tensor& bias) {
      static thread_local std::optional<Forgetful> communicator;
      communicator.emplace(distributed::world());
      Tensor y = sync_batch_norm(x, weight, bias, Eps, *communicator).y;
      communicator->forgets = true;
      return y;
    }),
              1e-2);
  }
}

/// x, whose gradient becomes the sum over all ranks: what dweight and dbias would be if the
/// backward reduced them too.
Tensor with_summed_gradient(const Tensor& x) {
  return record("summed", x.detached_copy(), {x}, {}, [](BackwardCall& call) {
    Tensor sum = call.grad().detached_copy();
    distributed::world().all_reduce(sum.mutable_data<double>());
    call.give(0, sum);
  });
}

TEST(SyncBatchNorm, WithDoubledParameterGradientsFailsGradcheck) {
  for (const int size : rank_counts()) {
    AcrossRanks ranks{splits(size)[0]};
    EXPECT_GE(ranks.error_of([](const Tensor& x, const Tensor& weight, const Tensor& bias) {
      return synchronized(x, with_summed_gradient(weight), with_summed_gradient(bias));
    }),
              1e-2);
  }
}

TEST(SyncBatchNorm, OfShardsIsBatchNormOfTheJoinedBatch) {
  for (const int size : rank_counts()) {
    for (const Counts& counts : splits(size)) {
      const AcrossRanks ranks{counts};
      const BatchNormResult want = batch_norm(ranks.x, ranks.weight, ranks.bias, Eps);
      on_ranks(size, [&](Communicator& communicator) {
        const BatchNormResult got = sync_batch_norm(part(ranks.x, counts, communicator.rank()),
                                                    ranks.weight, ranks.bias, Eps);
        expect_values(got.y, values(part(want.y, counts, communicator.rank())), 1e-14);
        std::vector<double> bits;
        for (std::size_t c = 0; c < Channels; ++c) {
          EXPECT_EQ(got.moments[c].n, want.moments[c].n);
          EXPECT_NEAR(got.moments[c].mean, want.moments[c].mean, 1e-15);
          EXPECT_NEAR(got.moments[c].m2, want.moments[c].m2, 1e-13);
          bits.insert(bits.end(), {got.moments[c].mean, got.moments[c].m2});
        }
        const std::vector<double> all = communicator.all_gather(std::span<const double>(bits));
        for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], bits[i % bits.size()]);
      });
    }
  }
}

TEST(SyncBatchNorm, TakesOneValuePerChannelOnARankButNotInAll) {
  on_ranks(2, [](Communicator& ranks) {
    const Tensor one = Tensor::full({1, Channels}, ranks.rank(), Dtype::F64);
    expect_values(sync_batch_norm(one, {}, {}, 0).y,
                  std::vector<double>(Channels, ranks.rank() == 0 ? -1 : 1));
    const Tensor x = Tensor::zeros({ranks.rank() == 0 ? 1 : 0, Channels}, Dtype::F64);
    EXPECT_THAT(message_of([&] { (void)sync_batch_norm(x); }),
                HasSubstr("more than one value per channel on all ranks together"));
    const Tensor empty = Tensor::zeros({0, Channels}, Dtype::F64);
    EXPECT_EQ(sync_batch_norm(empty).y.shape(), empty.shape());
  });
}

TEST(SyncBatchNorm, RefusesRanksThatRunAnotherLayer) {
  on_ranks(2, [](Communicator& ranks) {
    const Tensor x = Tensor::zeros({2, 3 + ranks.rank()}, Dtype::F64);
    EXPECT_THAT(message_of([&] { (void)sync_batch_norm(x); }),
                HasSubstr("rank 1 normalizes 4 channels and rank 0 3"));
  });
}

TEST(SyncBatchNorm, RefusesSecondDerivatives) {
  on_ranks(2, [](Communicator& ranks) {
    const Tensor x = noise({3, Channels}, "x" + std::to_string(ranks.rank())).set_requires_grad();
    Tape tape;
    const Tensor y = sync_batch_norm(x).y;
    const Tensor c = noise(y.shape(), "c");
    const Gradients first = tape.backward(y, {.record = true, .cotangent = c});
    EXPECT_THAT(message_of([&] { (void)tape.backward(first[x], {.cotangent = c}); }),
                HasSubstr("this operation has no backward"));
  });
}

TEST(SyncBatchNorm, OfOneProcessIsBatchNorm) {
  const Tensor x = noise({4, Channels}, "x");
  EXPECT_TRUE(same_bits(sync_batch_norm(x).y, batch_norm(x).y));
  const auto plain = make_norm(NormSpec::parse("batch"), Channels);
  const auto synced = make_norm(NormSpec::parse("batch(sync=true)"), Channels);
  for (Layer* norm : {plain.get(), synced.get()}) {
    norm->to(Dtype::F64);
    norm->initialize(1);
  }
  EXPECT_TRUE(same_bits((*plain)(x), (*synced)(x)));
  EXPECT_THAT(synced->describe(), HasSubstr("sync=true"));
  EXPECT_THAT(message_of([] {
                (void)make_norm(NormSpec::parse("batch(sync=true, simulate=bf16)"), Channels);
              }),
              HasSubstr("sync=true does not go with simulate=bf16"));
}

TEST(SyncBatchNorm, KeepsRunningStatisticsOfTheJoinedBatch) {
  for (const int size : rank_counts()) {
    const AcrossRanks ranks{splits(size)[0]};
    BatchNorm alone({.features = Channels});
    alone.to(Dtype::F64);
    (void)alone(ranks.x);
    on_ranks(size, [&](Communicator& communicator) {
      BatchNorm norm({.features = Channels, .sync = true});
      norm.to(Dtype::F64);
      const Tensor shard = part(ranks.x, ranks.counts, communicator.rank());
      (void)norm(shard);
      expect_values(norm.running_mean, values(alone.running_mean), 1e-15);
      expect_values(norm.running_var, values(alone.running_var), 1e-15);
      EXPECT_EQ(norm.num_batches_tracked.item(), 1);
      // Eval and frozen do nothing in common: one rank may evaluate alone.
      if (communicator.rank() != 0) return;
      alone.eval();
      norm.eval();
      expect_values(norm(shard), values(alone(shard)), 1e-14);
      norm.freeze();
      expect_values(norm(shard), values(alone(shard)), 1e-14);
      alone.train();
    });
  }
}

TEST(SyncBatchNorm, ConversionFindsEveryBatchNorm) {
  Sequential model;
  model.add_norm(NormSpec::parse("batch"), 4);
  model.add_norm(NormSpec::parse("layer"), 4);
  model.add<Sequential>({}).add_norm(NormSpec::parse("batch(momentum=0.2)"), 4);
  EXPECT_THAT(convert_to_sync_batch_norm(model), ElementsAre("0", "2.0"));
  EXPECT_TRUE(dynamic_cast<BatchNorm&>(*model.children()[0]).synchronized());
  const auto copy = clone(model);
  EXPECT_TRUE(dynamic_cast<BatchNorm&>(*copy->children()[0]).synchronized()) << "a copy is too";
  BatchNorm root({.features = 2});
  EXPECT_THAT(convert_to_sync_batch_norm(root), ElementsAre(""));
  Sequential none;
  EXPECT_THAT(convert_to_sync_batch_norm(none), IsEmpty());
}

}  // namespace
}  // namespace steady
