#include "examples/claims/experiments.hpp"
#include "examples/claims/markov_task.hpp"

namespace steady::examples::claims {

void warmup(Findings& findings, std::uint64_t seed) {
  const MarkovTask task = make_markov_task(seed);
  // The loss that is gained on letter frequencies: 0 for a model that has learned no context.
  const auto gain = [&](const char* placement, std::int64_t warmup, const char* gate = "none") {
    const MarkovTraining training{.encoder = {.hidden = 128,
                                              .layers = 6,
                                              .causal = true,
                                              .placement = Placement::parse(placement),
                                              .gate = Gate::parse(gate)},
                                  .warmup = warmup,
                                  .steps = 300};
    return task.unigram - train_on_markov(task, training, seed).loss;
  };
  const double post = gain("post", 0);
  const double post_warm = gain("post", 100);
  const double pre = gain("pre", 0);
  const double peri = gain("sandwich", 0);
  const double deepnorm = gain("deepnorm", 0);
  const double rezero = gain("none", 0, "rezero");
  const double none = gain("none", 0);

  const Band stuck{-0.2, 0.03};
  const Band begins = above(0.04);
  const Band learns = above(0.12);
  findings.check("post-LN", 0, post, stuck);
  findings.check("post-LN, warm-up of 100 steps", std::nullopt, post_warm, begins);
  findings.check("pre-LN", std::nullopt, pre, learns);
  findings.check("peri-LN", std::nullopt, peri, learns);
  findings.check("DeepNorm", std::nullopt, deepnorm, learns);
  findings.check("ReZero", std::nullopt, rezero, learns);
  findings.control("pre-LN", pre, stuck);
  findings.control("post-LN", post, begins);
  findings.control("post-LN", post, learns);
  findings.control("no norm", none, learns);
}

}  // namespace steady::examples::claims
