#include "examples/claims/markov_task.hpp"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <steadygrad/core/data/markov.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/embedding.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/optim/adam.hpp>
#include <steadygrad/optim/schedule.hpp>

namespace steady::examples::claims {
namespace {

constexpr std::int64_t Batch = 16;
constexpr std::int64_t Context = 32;

/// ids [B, T] -> logits [B, T, Letters].
struct Model : Layer {
  struct Options {
    Encoder::Options encoder = {};
  };
  explicit Model(const Options& options) : o(options) {}

  Options o;
  Embedding& tokens =
      add<Embedding>("tokens", {.count = MarkovTask::Letters, .dim = o.encoder.dim});
  Embedding& positions = add<Embedding>("positions", {.count = Context, .dim = o.encoder.dim});
  Encoder& encoder = add<Encoder>("encoder", o.encoder);
  Linear& head = add<Linear>("head", {.in = o.encoder.dim,
                                      .out = MarkovTask::Letters,
                                      .bias = false,
                                      .weight_init = xavier_normal_init()});

  Tensor forward(const Tensor& ids) override {
    const Tensor x = (tokens(ids) + positions.rows(0, ids.dim(1))) * std::sqrt(0.5);
    return head(encoder(x));
  }
};

struct Windows {
  Tensor ids, targets;  // i64 [Batch, Context]
};

Windows draw_windows(const MarkovTask& task, std::uint64_t seed, std::int64_t step) {
  Windows w{Tensor::empty({Batch, Context}, Dtype::I64),
            Tensor::empty({Batch, Context}, Dtype::I64)};
  Random random(seed, fmt::format("markov/batch/{}", step));
  const auto ids = w.ids.mutable_data<std::int64_t>();
  const auto targets = w.targets.mutable_data<std::int64_t>();
  const auto last = static_cast<std::int64_t>(task.text.size()) - Context;
  for (std::size_t row = 0; row < Batch; ++row) {
    const auto start = static_cast<std::size_t>(random.below(last));
    for (std::size_t t = 0; t < Context; ++t) {
      ids[row * Context + t] = task.text[start + t];
      targets[row * Context + t] = task.text[start + t + 1];
    }
  }
  return w;
}

}  // namespace

MarkovTask make_markov_task(std::uint64_t seed) {
  const MarkovText drawn =
      make_markov_text({.length = 65'536, .alphabet = MarkovTask::Letters, .seed = seed});
  MarkovTask task;
  task.entropy = drawn.entropy;
  std::array<double, MarkovTask::Letters> counts{};
  for (const char c : drawn.text) {
    task.text.push_back(c == ' ' ? 0 : c - 'a' + 1);
    counts[static_cast<std::size_t>(task.text.back())] += 1;
  }
  for (const double count : counts) {
    const double p = count / static_cast<double>(drawn.text.size());
    if (p > 0) task.unigram -= p * std::log(p);
  }
  return task;
}

MarkovResult train_on_markov(const MarkovTask& task, const MarkovTraining& training,
                             std::uint64_t seed) {
  constexpr std::int64_t Last = 20;
  Model model({training.encoder});
  model.initialize(seed);
  Adam optimizer(model.parameters(), {.lr = training.lr, .beta2 = 0.98});
  const Schedule rate = training.warmup == 0
                            ? constant_schedule(training.lr)
                            : warmup_schedule(training.warmup, constant_schedule(training.lr));
  MarkovResult result;
  Windows batch;
  for (std::int64_t step = 0; step < training.steps; ++step) {
    batch = draw_windows(task, seed, step);
    Tape tape;
    const Tensor loss = cross_entropy(model(batch.ids), batch.targets);
    if (step >= training.steps - Last) result.loss += loss.item() / double(Last);
    if (!std::isfinite(loss.item())) return {.loss = loss.item(), .scores = {}};
    optimizer.set_lr(rate(step));
    optimizer.step(tape.backward(loss));
  }
  result.scores = attention_scores(model, batch.ids);
  return result;
}

}  // namespace steady::examples::claims
