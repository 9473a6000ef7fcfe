#pragma once

#include <steadygrad/core/distributed/world.hpp>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <string>
#include <vector>

namespace steady {

/// batch_norm of the joined batch of all ranks, of which x is this rank's shard [N, ..., C]. Count,
/// mean and sum of squared deviations of every rank are gathered and merged in rank order in
/// float64; so are the sums of the backward. Shards may be unequal and empty, down to one value per
/// channel; moments are those of the joined batch, of the same bits on every rank.
///
/// Gradients are those of data-parallel training, where each rank differentiates the mean loss over
/// its N samples and distributed::average weights the results with N: the derivative of the mean
/// over the joined batch by x is N / (sum of all N) times this gradient by x, and that by weight
/// and bias is the average. Those of weight and bias are local sums: averaging adds them up.
///
/// Collective on all ranks, forward and, where x needs a gradient, backward. Second derivatives are
/// refused (Error); one rank alone is batch_norm itself. Throws ShapeError when the joined batch
/// has one value per channel, and Error when ranks disagree about C.
[[nodiscard]] BatchNormResult sync_batch_norm(
    const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5,
    distributed::Communicator& communicator = distributed::world());

/// Turns every BatchNorm of a model, the root too, into one whose statistics span all ranks (see
/// BatchNorm::synchronize), and returns their paths. Other norms with statistics of the batch keep
/// those of their rank: ghost, mean_only, renorm and simulated precision.
std::vector<std::string> convert_to_sync_batch_norm(Module& model);

}  // namespace steady
