#pragma once

#include <cstdint>
#include <vector>

#include "examples/claims/encoder.hpp"

namespace steady::examples::claims {

/// A text of 16 letters whose next one depends on the last two, for models to learn.
struct MarkovTask {
  static constexpr std::int64_t Letters = 16;
  std::vector<std::int64_t> text;
  double unigram = 0;  ///< loss of a model that knows the letters' frequencies alone, in nats
  double entropy = 0;  ///< of a model that knows the chain
};
[[nodiscard]] MarkovTask make_markov_task(std::uint64_t seed);

/// How a causal model with learned positions is trained, by Adam with betas 0.9 and 0.98 on 16
/// sequences of 32 letters per step.
struct MarkovTraining {
  Encoder::Options encoder = {};
  double lr = 3e-3;
  std::int64_t warmup = 0;  ///< updates of a linear climb to lr
  std::int64_t steps = 150;
};

struct MarkovResult {
  double loss = 0;                      ///< mean of the last 20 steps; not finite where one was not
  std::vector<AttentionScores> scores;  ///< of each layer, after training
};

[[nodiscard]] MarkovResult train_on_markov(const MarkovTask& task, const MarkovTraining& training,
                                           std::uint64_t seed);

}  // namespace steady::examples::claims
