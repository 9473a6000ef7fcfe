#pragma once

#include <cstdint>
#include <steadygrad/core/data/shard.hpp>
#include <steadygrad/core/distributed/average.hpp>
#include <steadygrad/core/distributed/world.hpp>
#include <steadygrad/layers/module.hpp>

namespace steady {

/// Options of DataParallel.
struct DataParallelOptions {
  bool overlap = true;             ///< start the averaging while backward runs
  std::int64_t bucket_bytes = 0;   ///< see distributed::AveragerOptions
  std::int64_t check_every = 100;  ///< steps between comparisons of all ranks; 0: never
};

/// Trains one model on all ranks of a communicator, each with its shard of every batch:
///
///   DataParallel parallel(model);
///   for (const Batch& batch : batches(train, {.size = 64, .shard = parallel.shard()})) {
///     Tape tape;
///     const Tensor loss = cross_entropy(model(batch.x), batch.y);    // the mean over the shard
///     optimizer.step(parallel.backward(tape, loss, batch.size()));
///   }
///
/// Every rank takes the step of the joined batch, and all keep the same bits. With one rank it does
/// what tape.backward(loss) does. The ranks have to do the same things in the same order. BatchNorm
/// that is not synchronized normalizes each shard by itself; running statistics that ranks gather
/// alone become those of rank 0 after each step.
class DataParallel {
 public:
  /// Gives all ranks the parameters and buffers of rank 0, and every rank a dropout of its own.
  /// Collective. Throws Error, on all ranks, for models that differ. The model must outlive this.
  explicit DataParallel(Module& model,
                        distributed::Communicator& communicator = distributed::world(),
                        const DataParallelOptions& options = {});

  /// The gradients of the mean loss over the joined batch, on every rank: backward of `loss`, the
  /// mean over this rank's `samples`, and distributed::average. A rank with samples = 0 runs model
  /// and loss on an empty batch, which takes part in whatever the model has in common. Every
  /// check_every steps all parameters and buffers are compared: Error, on all ranks, that names the
  /// tensor and the rank when a bit differs.
  [[nodiscard]] Gradients backward(Tape& tape, const Tensor& loss, std::int64_t samples);
  /// The same for gradients that are there, such as those of an Accumulator.
  [[nodiscard]] Gradients average(Gradients gradients, std::int64_t samples);

  /// The mean over the joined batch of what has the mean `value` over this rank's `samples`; the
  /// value of a rank without samples counts nothing. NaN without any samples.
  [[nodiscard]] double mean(double value, std::int64_t samples) const;
  /// The sum over all ranks.
  [[nodiscard]] double sum(double value) const;

  [[nodiscard]] distributed::Communicator& communicator() const { return communicator_; }
  /// This rank's part of every batch.
  [[nodiscard]] Shard shard() const {
    return {.rank = communicator_.rank(), .size = communicator_.size()};
  }

 private:
  void after_average();

  Module& model_;
  distributed::Communicator& communicator_;
  DataParallelOptions o_;
  distributed::GradientAverager averager_;
  std::int64_t steps_ = 0;
};

}  // namespace steady
