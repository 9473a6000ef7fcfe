#pragma once

#include <steadygrad/core/distributed/world.hpp>
#include <steadygrad/core/stats.hpp>
#include <steadygrad/layers/probe.hpp>

namespace steady {

/// What tensor_stats gives for two tensors joined, from what it gives for each: mean, spread and
/// RMS to rounding, the rest exactly (histograms of large tensors count another sample of them).
[[nodiscard]] TensorStats merge(const TensorStats& first, const TensorStats& second);

/// A sink for the probes of all ranks, each of which watches its shard: rank 0 hands over to `sink`
/// what one probe would see of the joined batch. Collective, on every sampled step. Inputs, outputs
/// and their gradients are joined in rank order (gradients as each rank has them, those of its own
/// mean loss); so are gradients of parameters, before they are averaged. Parameters and updates are
/// those of rank 0, which are everybody's. Of measures whose name ends in _min and _max the
/// smallest and the largest is taken, of others the mean over the ranks. Throws Error, on every
/// rank, when the ranks saw different things.
[[nodiscard]] ProbeSink join_probe(ProbeSink sink,
                                   distributed::Communicator& ranks = distributed::world());

}  // namespace steady
