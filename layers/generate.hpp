#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/decoder.hpp>
#include <vector>

namespace steady {

/// How the next token is drawn from logits.
struct SampleOptions {
  double temperature = 1.0;  ///< the logits are divided by it; 0: always the likeliest token
  std::int64_t top_k = 0;    ///< only the k likeliest tokens may come; 0: all
};

/// Draws from softmax(logits / temperature) over the top_k likeliest tokens; of equal logits the
/// lower ids count as likelier. logits: [vocab], f32 or f64. One uniform number of `random` is
/// used, none at temperature 0. Throws ShapeError for another shape, Error for options out of
/// range, and NonFiniteError when the likeliest logit is not finite.
[[nodiscard]] std::int64_t sample(const Tensor& logits, const SampleOptions& options,
                                  Random& random);

/// Options of generate.
struct GenerateOptions {
  std::int64_t count = 100;  ///< tokens to add
  SampleOptions sample = {};
  std::uint64_t seed = 0;
  bool cache = true;  ///< keep keys and values: one token's work per token
  /// Called with each new token.
  std::function<void(std::int64_t token)> on_token = {};
};

/// `prompt` and `count` tokens more, each drawn given those before it. The tokens are a function of
/// model, prompt and seed; with and without the cache they are the same. When the context is full
/// its older half is forgotten, and the rest becomes positions 0, 1, ... . Nothing is recorded.
/// Throws Error for an empty prompt, and for a model in train mode: call eval() first.
[[nodiscard]] std::vector<std::int64_t> generate(Decoder& model,
                                                 std::span<const std::int64_t> prompt,
                                                 const GenerateOptions& options = {});

}  // namespace steady
