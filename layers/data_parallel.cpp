#include <steadygrad/layers/data_parallel.hpp>

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/dropout.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <vector>

namespace steady {
namespace {

/// Buffers that the ranks do not keep equal by themselves: all but those of synchronized
/// BatchNorms.
State local_buffers(Module& model) {
  std::vector<Tensor> others;
  for (const Parameter& p : model.parameters()) others.push_back(p.value);
  model.visit([&](const Module& module) {
    const auto* norm = dynamic_cast<const BatchNorm*>(&module);
    if (norm == nullptr || !norm->synchronized() || !norm->o.track_running_stats) return;
    for (const Tensor& t : {norm->running_mean, norm->running_var, norm->num_batches_tracked}) {
      others.push_back(t);
    }
  });
  State buffers;
  for (const NamedTensor& t : model.state()) {
    if (std::ranges::none_of(others,
                             [&](const Tensor& o) { return o.shares_storage_with(t.value); })) {
      buffers.push_back(t);
    }
  }
  return buffers;
}

/// Rank 0 keeps its masks, which a checkpoint knows; the others get streams that follow from them.
void separate_dropout(Module& model, distributed::Communicator& communicator) {
  model.visit([&](Module& module) {
    auto* dropout = dynamic_cast<Dropout*>(&module);
    if (dropout == nullptr) return;
    std::uint64_t seed = dropout->seed();
    communicator.broadcast(std::span(&seed, 1));
    constexpr std::uint64_t Golden = 0x9E3779B97F4A7C15;
    dropout->set_seed(seed ^ Golden * static_cast<std::uint64_t>(communicator.rank()));
  });
}

}  // namespace

DataParallel::DataParallel(Module& model, distributed::Communicator& communicator,
                           const DataParallelOptions& options)
    : model_(model),
      communicator_(communicator),
      o_(options),
      averager_(model.parameters(), communicator, {.bucket_bytes = options.bucket_bytes}) {
  STEADY_CHECK(Error, options.check_every >= 0, "DataParallel: check_every is at least 0; got {}",
               options.check_every);
  if (communicator.size() == 1) return;
  distributed::broadcast(model.state(), communicator);
  separate_dropout(model, communicator);
}

Gradients DataParallel::backward(Tape& tape, const Tensor& loss, std::int64_t samples) {
  if (!o_.overlap) return average(tape.backward(loss), samples);
  averager_.watch(tape, samples);
  Gradients gradients = averager_.finish(tape.backward(loss));
  after_average();
  return gradients;
}

Gradients DataParallel::average(Gradients gradients, std::int64_t samples) {
  Gradients result = averager_.average(std::move(gradients), samples);
  after_average();
  return result;
}

void DataParallel::after_average() {
  ++steps_;
  if (communicator_.size() == 1) return;
  const State buffers = local_buffers(model_);
  if (!buffers.empty()) distributed::broadcast(buffers, communicator_);
  if (o_.check_every > 0 && steps_ % o_.check_every == 0) {
    distributed::check_same(model_.state(), communicator_, fmt::format("before update {}", steps_));
  }
}

double DataParallel::mean(double value, std::int64_t samples) const {
  struct Term {
    double value;
    std::int64_t samples;
  };
  const Term mine{value, samples};
  double sum = 0, count = 0;
  for (const Term& term : communicator_.all_gather(std::span(&mine, 1))) {
    if (term.samples == 0) continue;
    sum += static_cast<double>(term.samples) * term.value;
    count += static_cast<double>(term.samples);
  }
  return communicator_.size() == 1 && samples > 0 ? value : sum / count;
}

double DataParallel::sum(double value) const {
  double sum = 0;
  for (const double v : communicator_.all_gather(value)) sum += v;
  return sum;
}

}  // namespace steady
