#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <steadygrad/core/data/batches.hpp>
#include <steadygrad/core/data/rows.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/layers/conv2d.hpp>
#include <steadygrad/layers/data_parallel.hpp>
#include <steadygrad/layers/decoder.hpp>
#include <steadygrad/layers/dropout.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/pool.hpp>
#include <steadygrad/optim/sgd.hpp>

#include "tests/support/message_of.hpp"
#include "tests/support/ranks.hpp"

namespace steady {
namespace {

using distributed::Communicator;
using testing_support::message_of;
using testing_support::on_ranks;
using testing_support::rank_counts;

constexpr std::int64_t Samples = 11;
constexpr int Steps = 20;

struct Cnn : Layer {
  struct Options {};
  explicit Cnn(Options options) : o(options) {}
  const Options o;
  Conv2d& conv1 = add<Conv2d>("conv1", {.in = 2, .out = 4, .padding = 1, .bias = false});
  BatchNorm& norm1 = add<BatchNorm>("norm1", {.features = 4, .sync = true});
  Conv2d& conv2 = add<Conv2d>("conv2", {.in = 4, .out = 4, .padding = 1, .bias = false});
  BatchNorm& norm2 = add<BatchNorm>("norm2", {.features = 4, .sync = true});
  Linear& head = add<Linear>("head", {.in = 3 * 3 * 4, .out = 3});
  Tensor forward(const Tensor& x) override {
    const Tensor h = max_pool2d(relu(norm1(conv1(x))), 2);
    return head(flatten(relu(norm2(conv2(h))), 1));
  }
};

Decoder::Options decoder_options() {
  return Decoder::gpt2({.vocab = 7, .context = 6, .dim = 8, .layers = 2, .heads = 2});
}

/// What a task is made of: a model, and the loss of a part of a batch.
struct Task {
  std::function<std::unique_ptr<Layer>()> model;
  std::function<Tensor(Layer&, const std::vector<std::int64_t>& rows, Dtype)> loss;
};

Tensor images(Dtype dtype) {
  Random random(5, "images");
  Tensor x = Tensor::empty({3 * Samples, 6, 6, 2}, Dtype::F64);
  for (double& v : x.mutable_data<double>()) v = double(float(random.normal()));
  return x.detached_copy(dtype);
}

Tensor labels(const Shape& shape, std::int64_t classes) {
  Random random(6, "labels");
  Tensor y = Tensor::empty(shape, Dtype::I64);
  for (auto& v : y.mutable_data<std::int64_t>()) v = random.below(classes);
  return y;
}

Task cnn_task() {
  return {[] { return std::make_unique<Cnn>(Cnn::Options{}); },
          [](Layer& model, const std::vector<std::int64_t>& rows, Dtype dtype) {
            return cross_entropy(model(copy_rows(images(dtype), rows)),
                                 copy_rows(labels({3 * Samples}, 3), rows));
          }};
}

Task transformer_task() {
  return {[] { return std::make_unique<Decoder>(decoder_options()); },
          [](Layer& model, const std::vector<std::int64_t>& rows, Dtype) {
            const Tensor ids = copy_rows(labels({3 * Samples, 6}, 7), rows);
            return static_cast<Decoder&>(model).loss(ids, ids);
          }};
}

/// The samples of one rank in one step. Shards are unequal, and in every third step one is empty.
std::vector<std::int64_t> rows_of(int step, int rank, int size) {
  std::vector<std::int64_t> cuts{0};
  for (int r = 1; r < size; ++r) {
    const std::int64_t even = Samples * r / size;
    cuts.push_back(step % 3 == 2 ? (r == size - 1 ? Samples : even)
                                 : even + (step % 3 == 1 ? 2 : -1));
  }
  cuts.push_back(Samples);
  std::vector<std::int64_t> rows;
  const auto r = static_cast<std::size_t>(rank);
  for (std::int64_t i = cuts[r]; i < cuts[r + 1]; ++i) rows.push_back(step % 3 * Samples + i);
  return rows;
}

/// Parameters and buffers, by name.
using Values = std::map<std::string, std::vector<double>>;

Values values_of(const Module& model) {
  Values values;
  for (const NamedTensor& t : model.state()) {
    const Tensor wide = t.value.detached_copy(Dtype::F64);
    values[t.name].assign(wide.data<double>().begin(), wide.data<double>().end());
  }
  return values;
}

/// What some steps make of a model.
Values train(Communicator& ranks, const Task& task, Dtype dtype, bool overlap = true) {
  const std::unique_ptr<Layer> model = task.model();
  model->initialize(1);
  model->to(dtype);
  Sgd optimizer(model->parameters(), {.lr = 0.05, .momentum = 0.9});
  DataParallel parallel(*model, ranks, {.overlap = overlap, .bucket_bytes = 512, .check_every = 1});
  for (int step = 0; step < Steps; ++step) {
    const auto rows = rows_of(step, ranks.rank(), ranks.size());
    Tape tape;
    const Tensor loss = task.loss(*model, rows, dtype);
    optimizer.step(parallel.backward(tape, loss, std::ssize(rows)));
  }
  return values_of(*model);
}

Values train_on(int size, const Task& task, Dtype dtype, bool overlap = true) {
  Values result;
  std::mutex mutex;
  on_ranks(size, [&](Communicator& ranks) {
    Values mine = train(ranks, task, dtype, overlap);
    const std::lock_guard lock(mutex);
    if (!result.empty()) {
      EXPECT_EQ(result, mine) << "ranks differ";
    }
    result = std::move(mine);
  });
  return result;
}

Values train_alone(const Task& task, Dtype dtype) {
  distributed::SingleProcess alone;
  const distributed::UseCommunicator use(alone);
  return train(alone, task, dtype);
}

/// |got - want| / |want| of each tensor.
double difference(const Values& got, const Values& want) {
  double most = 0;
  EXPECT_EQ(got.size(), want.size());
  for (const auto& [name, w] : want) {
    const std::vector<double>& g = got.at(name);
    double apart = 0, length = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      apart += (g[i] - w[i]) * (g[i] - w[i]);
      length += w[i] * w[i];
    }
    most = std::max(most, std::sqrt(apart / length));
  }
  return most;
}

void expect_joined(const Task& task, Dtype dtype, double tolerance) {
  const Values want = train_alone(task, dtype);
  for (const int size : rank_counts()) {
    const double apart = difference(train_on(size, task, dtype), want);
    EXPECT_LE(apart, tolerance) << size << " ranks";
    testing::Test::RecordProperty(fmt::format("{}_{}_ranks", to_string(dtype), size),
                                  fmt::format("{:.1e}", apart));
  }
}

TEST(DataParallel, TrainsACnnWithSyncBatchNormAsOneProcessDoes) {
  expect_joined(cnn_task(), Dtype::F64, 1e-12);
  expect_joined(cnn_task(), Dtype::F32, 1e-5);
}

TEST(DataParallel, TrainsATransformerAsOneProcessDoes) {
  expect_joined(transformer_task(), Dtype::F64, 1e-12);
  expect_joined(transformer_task(), Dtype::F32, 1e-5);
}

TEST(DataParallel, GivesTheSameBitsEveryTime) {
  for (const int size : rank_counts()) {
    for (const Task& task : {cnn_task(), transformer_task()}) {
      const Values first = train_on(size, task, Dtype::F32);
      EXPECT_EQ(train_on(size, task, Dtype::F32), first);
      EXPECT_EQ(train_on(size, task, Dtype::F32, false), first) << "averaged after backward";
    }
  }
}

TEST(DataParallel, BeginsWithTheModelOfRankZero) {
  for (const int size : rank_counts()) {
    on_ranks(size, [](Communicator& ranks) {
      Cnn model({});
      model.initialize(static_cast<std::uint64_t>(ranks.rank()));
      const DataParallel parallel(model, ranks);
      Cnn first({});
      first.initialize(0);
      EXPECT_EQ(values_of(model), values_of(first));
    });
  }
}

TEST(DataParallel, NamesTheTensorAndTheRankThatDiverged) {
  for (const int size : rank_counts()) {
    on_ranks(size, [](Communicator& ranks) {
      const Task task = cnn_task();
      const std::unique_ptr<Layer> model = task.model();
      model->initialize(1);
      DataParallel parallel(*model, ranks, {.check_every = 3});
      const auto step = [&] {
        const auto rows = rows_of(0, ranks.rank(), ranks.size());
        Tape tape;
        const Tensor loss = task.loss(*model, rows, Dtype::F32);
        (void)parallel.backward(tape, loss, std::ssize(rows));
      };
      step();
      if (ranks.rank() == 1) find(model->state(), "conv2.weight").mutable_data<float>()[3] += 1e-6F;
      step();
      EXPECT_EQ(message_of(step),
                "distributed: 'conv2.weight' on rank 1 is not that of rank 0 before update 3");
    });
  }
}

TEST(DataParallel, TakesRunningStatisticsThatRanksGatherAloneFromRankZero) {
  on_ranks(2, [](Communicator& ranks) {
    Cnn model({});
    model.initialize(1);
    model.norm1.synchronize(false);
    DataParallel parallel(model, ranks, {.check_every = 1});
    const auto rows = rows_of(0, ranks.rank(), ranks.size());
    Tape tape;
    const Tensor loss = cross_entropy(model(copy_rows(images(Dtype::F32), rows)),
                                      copy_rows(labels({3 * Samples}, 3), rows));
    EXPECT_NO_THROW((void)parallel.backward(tape, loss, std::ssize(rows)));
    EXPECT_NO_THROW(distributed::check_same(model.state(), ranks));
  });
}

TEST(DataParallel, GivesEveryRankADropoutOfItsOwn) {
  on_ranks(2, [](Communicator& ranks) {
    Dropout dropout({.p = 0.5});
    dropout.initialize(7);
    for (int again = 0; again < 2; ++again) {
      const DataParallel parallel(dropout, ranks);
      const auto seeds = ranks.all_gather(dropout.seed());
      EXPECT_EQ(seeds[0], 7) << "a checkpoint of rank 0 goes on as it was";
      EXPECT_NE(seeds[1], 7);
    }
  });
}

TEST(DataParallel, MeansWeighSamples) {
  on_ranks(3, [](Communicator& ranks) {
    Cnn model({});
    model.initialize(1);
    const DataParallel parallel(model, ranks);
    const std::int64_t samples = ranks.rank() == 0 ? 3 : ranks.rank() == 1 ? 1 : 0;
    EXPECT_EQ(parallel.mean(ranks.rank() == 2 ? NAN : 4.0 * ranks.rank(), samples), 1.0);
    EXPECT_EQ(parallel.sum(ranks.rank()), 3.0);
    EXPECT_EQ(parallel.shard().rank, ranks.rank());
    EXPECT_EQ(parallel.shard().size, 3);
  });
}

}  // namespace
}  // namespace steady
