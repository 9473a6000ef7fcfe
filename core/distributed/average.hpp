#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <steadygrad/core/distributed/communicator.hpp>
#include <steadygrad/core/gradients.hpp>
#include <steadygrad/core/parameter.hpp>
#include <steadygrad/core/tape.hpp>
#include <string_view>
#include <vector>

namespace steady::distributed {

/// The gradient of the joined batch, from those of its shards. Every rank has the gradients of the
/// mean loss over its `samples`; the result, of the same bits on every rank, is
///   gradient = sum_r samples_r * gradient_r / sum_r samples_r
/// added in rank order in float64. Shards may be unequal, and empty: a rank with samples = 0
/// contributes nothing, whatever its gradients are, and gets what the others have. A parameter that
/// the backward of no rank reached has no gradient in the result; other leaves than `parameters`
/// keep the gradient of their own rank. No samples at all give no gradients. Throws Error for a
/// negative count.
[[nodiscard]] Gradients average(Gradients gradients, std::span<const Parameter> parameters,
                                Communicator& communicator, std::int64_t samples);

/// The same for all leaves of `gradients`, in the order in which they were created. Throws Error,
/// on every rank, unless all ranks have as many leaves of the same sizes.
[[nodiscard]] Gradients average(Gradients gradients, Communicator& communicator,
                                std::int64_t samples);

/// Options of GradientAverager.
struct AveragerOptions {
  /// Gradients sent together; a larger one goes alone. 0: 1 MiB, or 64 KiB for each rank where that
  /// is more. No bit depends on it.
  std::int64_t bucket_bytes = 0;
};

/// average() that begins while backward still runs: gradients go into buckets, from the last
/// parameter to the first as backward finds them, and each full bucket is summed in the background.
///
///   Tape tape;
///   const Tensor loss = cross_entropy(model(x), y);
///   averager.watch(tape, x.dim(0));
///   Gradients gradients = averager.finish(tape.backward(loss));
///
/// The result has the bits of average(). MPI moves data when it is called: at each gradient that
/// backward finishes, and in finish().
class GradientAverager {
 public:
  /// Of the same parameters in the same order on all ranks: Error, naming the first that differs,
  /// and for negative bucket_bytes.
  GradientAverager(std::vector<Parameter> parameters, Communicator& communicator,
                   const AveragerOptions& options = {});
  ~GradientAverager();
  GradientAverager(const GradientAverager&) = delete;
  GradientAverager& operator=(const GradientAverager&) = delete;

  /// Tells the other ranks how many samples this one has, and takes the gradients of the first
  /// backward of `tape` as they come. Call it after the forward. Throws Error for a negative count,
  /// and when the step before was not finished.
  void watch(Tape& tape, std::int64_t samples);
  /// Ends the step that watch() began, or does all of it: with what backward returned.
  [[nodiscard]] Gradients finish(Gradients gradients);
  [[nodiscard]] Gradients average(Gradients gradients, std::int64_t samples);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Gives all ranks the values that `root` has. Throws Error, on every rank, when names, shapes or
/// dtypes are not the same everywhere.
void broadcast(const State& state, Communicator& communicator, int root = 0);

/// Throws Error, on every rank, unless all have the same bits; names the first rank and tensor.
/// `when` ends the message: "after step 100".
void check_same(const State& state, Communicator& communicator, std::string_view when = {});

}  // namespace steady::distributed
