#pragma once

#include <cstdint>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/layers/layer.hpp>
#include <string>
#include <vector>

namespace steady {

/// Train: y = x * mask / (1 - p), each mask element 1 with probability 1 - p. Eval and frozen: y =
/// x. The masks are a function of the seed given to initialize(), this layer's path and the number
/// of calls so far, which stands still while a NoStateUpdate is alive: the mask of the next
/// training call, again and again. Throws Error for p outside [0, 1].                   [Srivastava
/// et al. 2014]
class Dropout : public Layer {
 public:
  struct Options {
    double p = 0.5;  ///< probability of zero
  };
  explicit Dropout(Options options);

  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string describe() const override { return fmt::format("Dropout(p={})", o.p); }
  /// Training calls so far: with the seed, all that its masks depend on.
  [[nodiscard]] std::uint64_t calls() const { return calls_; }
  void set_calls(std::uint64_t calls) { calls_ = calls; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  void set_seed(std::uint64_t seed) { seed_ = seed; }
  /// For an operation that drops by itself, from the stream of this layer's path and seed: the
  /// number of this call, which then counts.
  [[nodiscard]] std::uint64_t next_call() { return state_updates() ? calls_++ : calls_; }

  const Options o;

 private:
  void on_initialize(std::uint64_t seed) override;
  void on_clone(const Module& original) override;
  std::vector<Counter> counters() override { return {{"seed", &seed_}, {"calls", &calls_}}; }

  std::uint64_t seed_ = 0;
  std::uint64_t calls_ = 0;
};

}  // namespace steady
