#pragma once

#include <cstdint>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/layer.hpp>

namespace steady::detail {

/// What the scores of one attention call were made of.
struct AttentionScores {
  Tensor q{};     ///< [B, Tq, H, d], as they met k: after norms and rotation
  Tensor k{};     ///< [B, capacity, Hkv, d]
  Tensor mask{};  ///< as AttentionOptions::mask
  bool causal = false;
  double scale = 1;
  std::int64_t keys = 0;  ///< the first ones of the capacity
};

/// Gives, in nats and over all batches, heads and queries that see a key:
///   logit_max     the largest scaled score scale q . k that a query sees
///   entropy_mean  mean of -sum_j p_j log p_j, p the softmax of a query's scores; 0: it attends one
///                 key, log n: n keys alike
/// Both NaN where a score is not finite; nothing where no query sees a key.
void measure_attention(const MeasureSink& sink, const AttentionScores& scores);

}  // namespace steady::detail
