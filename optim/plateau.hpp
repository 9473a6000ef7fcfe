#pragma once

#include <cstdint>
#include <functional>
#include <steadygrad/core/io/checkpoint.hpp>
#include <steadygrad/core/parameter.hpp>

namespace steady {

/// Options of ReduceOnPlateau; the defaults are PyTorch's.
struct PlateauOptions {
  double factor = 0.1;              ///< of each reduction, in (0, 1)
  std::int64_t patience = 10;       ///< reports without progress that are let pass, at least 0
  double threshold = 1e-4;          ///< how much better counts as progress, not negative
  bool absolute_threshold = false;  ///< best - threshold instead of best * (1 - threshold)
  bool higher_is_better = false;    ///< an accuracy instead of a loss
  std::int64_t cooldown = 0;        ///< reports after a reduction that do not count, at least 0
  double min_lr = 0.0;              ///< not negative
  double min_change = 1e-8;         ///< a smaller reduction is left out, not negative
};

/// Multiplies the learning rate by `factor` after more than `patience` reports in a row that are
/// no better than the best so far. The rule is PyTorch's. A NaN is never progress.
///
///   optimizer.set_lr(plateau.report(optimizer.lr(), validation_loss));
class ReduceOnPlateau {
 public:
  /// Throws Error for options out of range.
  explicit ReduceOnPlateau(const PlateauOptions& options = {});

  /// Takes note of a metric; returns the rate that follows on `lr`.
  double report(double lr, double metric);

  [[nodiscard]] double best() const { return best_; }
  /// "best" (f64 []), "bad_reports" and "cooldown_left" (i64 []): copies.
  [[nodiscard]] State state() const;
  /// Takes a state over; throws Error, before anything has changed, unless it has exactly these.
  void load_state(const State& state) { prepare_restore({state, {}})(); }
  /// The state as a part of a checkpoint.
  [[nodiscard]] CheckpointPart checkpoint() const { return {state(), {}}; }
  /// Checks as load_state does; what it returns takes the state over.
  [[nodiscard]] std::function<void()> prepare_restore(const CheckpointPart& part);

 private:
  [[nodiscard]] bool better(double metric) const;

  PlateauOptions o_;
  double best_;
  std::int64_t bad_reports_ = 0;
  std::int64_t cooldown_left_ = 0;
};

}  // namespace steady
