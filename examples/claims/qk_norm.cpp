#include <cmath>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/tape.hpp>

#include "examples/claims/encoder.hpp"
#include "examples/claims/experiments.hpp"
#include "examples/claims/markov_task.hpp"
#include "examples/claims/measure.hpp"

namespace steady::examples::claims {
namespace {

/// One block with its query and key weights multiplied by a factor.
struct Scaled {
  double logit = 0;     // largest
  double entropy = 0;   // of the attention, nats
  double gradient = 0;  // |dL/dWq|
};

Scaled scaled_block(const char* qk_norm, double factor, std::uint64_t seed) {
  Encoder net({.layers = 1, .qk_norm = NormSpec::parse(qk_norm)});
  net.initialize(seed);
  const State state = net.state();
  for (const char* name : {"0.self_attn.q_proj.weight", "0.self_attn.k_proj.weight"}) {
    for (float& w : find(state, name).mutable_data<float>()) w *= static_cast<float>(factor);
  }
  const Tensor x = normal_tensor({4, 32, net.o.dim}, seed, "x");
  const AttentionScores scores = attention_scores(net, x).front();
  Tape tape;
  const Tensor loss = sum(net(x) * normal_tensor(x.shape(), seed, "g"));
  const Tensor gradient = tape.backward(loss)[find(state, "0.self_attn.q_proj.weight")];
  return {scores.logit_max, scores.entropy, std::sqrt(squared_norm(gradient))};
}

/// The first layer's attention after 100 steps without warm-up.
AttentionScores trained(const MarkovTask& task, const char* qk_norm, double lr,
                        std::uint64_t seed) {
  const MarkovTraining training{
      .encoder = {.hidden = 128, .layers = 2, .causal = true, .qk_norm = NormSpec::parse(qk_norm)},
      .lr = lr,
      .steps = 100};
  const MarkovResult result = train_on_markov(task, training, seed);
  return result.scores.empty() ? AttentionScores{std::nan(""), std::nan("")}
                               : result.scores.front();
}

void scale_checks(Findings& findings, std::uint64_t seed) {
  constexpr double Factor = 16;
  const char* rms = "rms(eps=0)";
  const Scaled plain = scaled_block("none", 1, seed);
  const Scaled plain_scaled = scaled_block("none", Factor, seed);
  const Scaled normed = scaled_block(rms, 1, seed);
  const Scaled normed_scaled = scaled_block(rms, Factor, seed);
  const auto change = [](double a, double b) { return std::abs(a / b - 1); };

  const Band squared = around(Factor * Factor, 0.01);
  const Band same = below(1e-5);
  const Band bounded = below(4 * (1 + 1e-5));  // sqrt of 16 features per head
  findings.check("weights x16, logits", 256, plain_scaled.logit / plain.logit, squared);
  findings.check("weights x16, entropy", std::nullopt, plain_scaled.entropy, below(0.05));
  findings.check("QK-norm, weights x16, entropy changes", 0,
                 change(normed_scaled.entropy, normed.entropy), same);
  findings.check("QK-norm, largest logit", std::nullopt, normed_scaled.logit, bounded);
  findings.check("QK-norm, |dWq| with weights x16", 1 / Factor,
                 normed_scaled.gradient / normed.gradient, around(1 / Factor, 1e-4));
  findings.control("QK-norm, logits", normed_scaled.logit / normed.logit, squared);
  findings.control("QK-norm, entropy", normed_scaled.entropy, below(0.05));
  findings.control("no QK-norm, entropy changes", change(plain_scaled.entropy, plain.entropy),
                   same);
  findings.control("no QK-norm, largest logit", plain_scaled.logit, bounded);
  findings.control("no QK-norm, |dWq|", plain_scaled.gradient / plain.gradient,
                   around(1 / Factor, 1e-4));
}

void training_checks(Findings& findings, std::uint64_t seed) {
  const MarkovTask task = make_markov_task(seed);
  const AttentionScores plain = trained(task, "none", 3e-2, seed);
  const AttentionScores normed = trained(task, "rms", 3e-2, seed);
  const AttentionScores plain_slow = trained(task, "none", 3e-3, seed);
  const AttentionScores normed_slow = trained(task, "rms", 3e-3, seed);
  findings.check("lr 0.03, logits without / with", std::nullopt, plain.logit_max / normed.logit_max,
                 above(10));
  findings.check("lr 0.03, entropy without", std::nullopt, plain.entropy, below(0.25));
  findings.check("lr 0.03, entropy with QK-norm", std::nullopt, normed.entropy, above(0.5));
  findings.control("lr 0.003, logits", plain_slow.logit_max / normed_slow.logit_max, above(10));
  findings.control("lr 0.003, entropy without", plain_slow.entropy, below(0.25));
  findings.control("lr 0.03, entropy without", plain.entropy, above(0.5));
}

}  // namespace

void qk_norm(Findings& findings, std::uint64_t seed) {
  scale_checks(findings, seed);
  training_checks(findings, seed);
}

}  // namespace steady::examples::claims
