#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "examples/claims/encoder.hpp"

namespace steady::examples::claims {

/// A text of 16 letters whose next one depends on the last two, for models to learn.
struct MarkovTask {
  std::vector<std::int64_t> letters;
  double unigram = 0;  ///< loss of a model that knows the frequencies of the letters alone, in nats
  static constexpr std::int64_t Letters = 16;
};
[[nodiscard]] MarkovTask make_markov_task(std::uint64_t seed);

/// How a causal model with learned positions is trained by Adam with betas 0.9 and 0.98.
struct TrainOptions {
  Encoder::Options encoder = {};
  double lr = 3e-3;
  std::int64_t warmup = 0;  ///< updates of a linear climb to lr
  std::int64_t steps = 150;
};

struct TrainResult {
  double loss = 0;                ///< mean of the last 20 steps
  std::vector<double> logit_max;  ///< of each layer's attention at the last step
  std::vector<double> entropy;
};

/// 16 sequences of 32 letters per step. Ends when the loss is not finite, which it then returns.
[[nodiscard]] TrainResult train_on_markov(const MarkovTask& task, const TrainOptions& options,
                                          std::uint64_t seed);

}  // namespace steady::examples::claims
