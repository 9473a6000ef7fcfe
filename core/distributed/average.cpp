#include <steadygrad/core/distributed/average.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <steadygrad/core/distributed/world.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/crc64.hpp>

namespace steady::distributed {
namespace {

/// Gradients of one dtype that are sent together, and behind them a one for each that is there.
struct Bucket {
  Dtype dtype = Dtype::F32;
  std::vector<std::size_t> parameters;
  std::vector<std::size_t> offsets;
  std::size_t elements = 0;
  std::vector<float> f32;
  std::vector<double> f64;
  std::size_t waits_for = 0;  // parameters whose gradient is not in yet
  std::unique_ptr<Pending> pending;

  template <class T>
  std::span<T> values() {
    if constexpr (std::is_same_v<T, float>) {
      return f32;
    } else {
      return f64;
    }
  }
};

std::string names_and_shapes(std::span<const Parameter> parameters) {
  std::string text;
  for (const Parameter& p : parameters) {
    text += fmt::format("{} {}\n", p.name, steady::describe(p.value));
  }
  return text;
}

}  // namespace

struct GradientAverager::State {
  State(std::vector<Parameter> all, Communicator& of, const AveragerOptions& options)
      : parameters(std::move(all)), communicator(of), o(options) {}

  /// Cuts the parameters that require a gradient into buckets, unless that is done already.
  void lay_out() {
    std::vector<std::pair<std::size_t, Dtype>> now;
    for (std::size_t i = parameters.size(); i-- > 0;) {
      if (parameters[i].value.requires_grad()) now.emplace_back(i, parameters[i].value.dtype());
    }
    if (now == laid_out) return;
    laid_out = now;
    buckets.clear();
    const std::int64_t bytes =
        o.bucket_bytes > 0
            ? o.bucket_bytes
            : std::max(std::int64_t{1} << 20, std::int64_t{65536} * communicator.size());
    place.assign(parameters.size(), std::nullopt);
    for (const auto& [i, dtype] : now) {
      const auto n = static_cast<std::size_t>(parameters[i].value.numel());
      const auto room = static_cast<std::size_t>(bytes / size_of(dtype));
      if (buckets.empty() || buckets.back().dtype != dtype || buckets.back().elements + n > room) {
        buckets.emplace_back().dtype = dtype;
      }
      Bucket& bucket = buckets.back();
      place[i] = {buckets.size() - 1, bucket.parameters.size()};
      bucket.parameters.push_back(i);
      bucket.offsets.push_back(bucket.elements);
      bucket.elements += n;
    }
    for (Bucket& bucket : buckets) {
      const std::size_t size = bucket.elements + bucket.parameters.size();
      if (bucket.dtype == Dtype::F32) bucket.f32.resize(size);
      if (bucket.dtype == Dtype::F64) bucket.f64.resize(size);
    }
  }

  void begin(std::int64_t samples) {
    STEADY_CHECK(Error, samples >= 0, "average: a number of samples is not negative; got {}",
                 samples);
    STEADY_CHECK(Error, !open, "average: the step before was not finished");
    const std::vector<std::int64_t> counts = communicator.all_gather(samples);
    const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), 0L));
    weights.clear();
    for (const std::int64_t n : counts) {
      weights.push_back(n == 0 ? 0.0 : static_cast<double>(n) / total);
    }
    lay_out();
    for (Bucket& bucket : buckets) bucket.waits_for = bucket.parameters.size();
    taken.assign(parameters.size(), false);
    started = 0;
    open = true;
    ++step;
  }

  /// Copies a gradient into its bucket, zeros for none, and starts what is complete.
  void take(std::size_t i, const Tensor* gradient) {
    if (!place[i] || taken[i]) return;
    Bucket& bucket = buckets[place[i]->first];
    const std::size_t k = place[i]->second;
    const auto n = static_cast<std::size_t>(parameters[i].value.numel());
    dispatch_float("average", bucket.dtype, [&]<FloatElement T>() {
      const std::span<T> values = bucket.values<T>();
      const std::span<T> mine = values.subspan(bucket.offsets[k], n);
      if (gradient != nullptr) {
        std::ranges::copy(gradient->data<T>(), mine.begin());
      } else {
        std::ranges::fill(mine, T{0});
      }
      values[bucket.elements + k] = gradient != nullptr ? T{1} : T{0};
    });
    taken[i] = true;
    --bucket.waits_for;
    while (started < buckets.size() && buckets[started].waits_for == 0) start(buckets[started++]);
    if (started > 0 && buckets[started - 1].pending) (void)buckets[started - 1].pending->poll();
  }

  void start(Bucket& bucket) {
    dispatch_float("average", bucket.dtype, [&]<FloatElement T>() {
      bucket.pending = communicator.start_sum(bucket.values<T>(), weights);
    });
  }

  Gradients finish(Gradients gradients) {
    constexpr std::size_t UnderWay = 4;  // few, so that what arrives is still in a cache
    Gradients result;
    std::size_t done = 0;
    const auto end_one = [&] {
      Bucket& bucket = buckets[done++];
      bucket.pending->wait();
      bucket.pending.reset();
      for (std::size_t k = 0; k < bucket.parameters.size(); ++k)
        unpack(bucket, k, gradients, result);
    };
    for (const Bucket& bucket : buckets) {
      for (const std::size_t i : bucket.parameters) take(i, gradients.find(parameters[i].value));
      while (started - done > UnderWay) end_one();
    }
    while (done < buckets.size()) end_one();
    for (Gradients::Item& item : gradients.items()) {
      if (!is_parameter(item.leaf)) result.insert(item.leaf, std::move(item.gradient));
    }
    open = false;
    return result;
  }

  void unpack(Bucket& bucket, std::size_t k, Gradients& own, Gradients& result) {
    const Tensor& leaf = parameters[bucket.parameters[k]].value;
    dispatch_float("average", bucket.dtype, [&]<FloatElement T>() {
      const std::span<const T> values = bucket.values<T>();
      if (values[bucket.elements + k] == T{0}) return;  // no rank with samples reached it
      Tensor* mine = own.find(leaf);
      Tensor average =
          mine != nullptr ? std::move(*mine) : Tensor::empty(leaf.shape(), leaf.dtype());
      const auto n = static_cast<std::size_t>(leaf.numel());
      std::ranges::copy(values.subspan(bucket.offsets[k], n),
                        average.mutable_data<T>("average").begin());
      result.insert(leaf, std::move(average));
    });
  }

  [[nodiscard]] bool is_parameter(const Tensor& leaf) const {
    return std::ranges::any_of(parameters, [&](const Parameter& p) {
      return p.value.requires_grad() && p.value.shares_storage_with(leaf);
    });
  }

  std::vector<Parameter> parameters;
  Communicator& communicator;
  AveragerOptions o;
  std::vector<std::pair<std::size_t, Dtype>> laid_out;
  std::vector<Bucket> buckets;
  std::vector<std::optional<std::pair<std::size_t, std::size_t>>> place;  // bucket, index in it
  std::vector<bool> taken;
  std::vector<double> weights;
  std::size_t started = 0;  // buckets
  std::uint64_t step = 0;
  bool open = false;
};

GradientAverager::GradientAverager(std::vector<Parameter> parameters, Communicator& communicator,
                                   const AveragerOptions& options)
    : state_(std::make_shared<State>(std::move(parameters), communicator, options)) {
  STEADY_CHECK(Error, options.bucket_bytes >= 0, "average: bucket_bytes must be at least 0; got {}",
               options.bucket_bytes);
  check_same_text(communicator, "average: the list of parameters",
                  names_and_shapes(state_->parameters));
}

GradientAverager::~GradientAverager() = default;

void GradientAverager::watch(Tape& tape, std::int64_t samples) {
  state_->begin(samples);
  if (state_->communicator.size() == 1) return;
  for (std::size_t i = state_->parameters.size(); i-- > 0;) {
    if (!state_->place[i]) continue;
    tape.on_gradient(state_->parameters[i].value, [weak = std::weak_ptr<State>(state_), i,
                                                   step = state_->step](const Tensor& gradient) {
      const std::shared_ptr<State> state = weak.lock();
      if (state && state->open && state->step == step) state->take(i, &gradient);
    });
  }
}

Gradients GradientAverager::finish(Gradients gradients) {
  STEADY_CHECK(Error, state_->open, "average: finish() without watch()");
  if (state_->communicator.size() > 1) return state_->finish(std::move(gradients));
  state_->open = false;
  return state_->weights[0] == 0 ? Gradients() : std::move(gradients);
}

Gradients GradientAverager::average(Gradients gradients, std::int64_t samples) {
  state_->begin(samples);
  return finish(std::move(gradients));
}

Gradients average(Gradients gradients, std::span<const Parameter> parameters,
                  Communicator& communicator, std::int64_t samples) {
  GradientAverager averager({parameters.begin(), parameters.end()}, communicator);
  return averager.average(std::move(gradients), samples);
}

Gradients average(Gradients gradients, Communicator& communicator, std::int64_t samples) {
  std::vector<Parameter> leaves;
  for (const Gradients::Item& item : gradients.items()) {
    leaves.push_back({.name = fmt::format("leaf {}", leaves.size()), .value = item.leaf});
  }
  return average(std::move(gradients), leaves, communicator, samples);
}

// --- states ------------------------------------------------------------------------------------

void broadcast(const State& state, Communicator& communicator, int root) {
  if (communicator.size() == 1) return;
  std::string text;
  for (const NamedTensor& t : state) text += fmt::format("{} {}\n", t.name, describe(t.value));
  check_same_text(communicator, "broadcast: the state", text);
  for (const NamedTensor& t : state) {
    Tensor value = t.value;
    dispatch_all(value.dtype(), [&]<Element T>() {
      communicator.broadcast(value.mutable_data<T>("broadcast"), root);
    });
  }
}

void check_same(const State& state, Communicator& communicator, std::string_view when) {
  if (communicator.size() == 1) return;
  std::vector<std::uint64_t> mine;
  for (const NamedTensor& t : state) {
    const auto bytes = static_cast<std::size_t>(t.value.numel() * size_of(t.value.dtype()));
    mine.push_back(crc64({t.value.storage().bytes(), bytes}));
  }
  const auto all = communicator.all_gather(std::span<const std::uint64_t>(mine));
  for (std::size_t r = 1; r < static_cast<std::size_t>(communicator.size()); ++r) {
    const auto theirs = all.begin() + static_cast<std::ptrdiff_t>(r * mine.size());
    const auto at = std::mismatch(all.begin(), all.begin() + std::ssize(mine), theirs);
    if (at.second == theirs + std::ssize(mine)) continue;
    const auto i = static_cast<std::size_t>(at.second - theirs);
    throw Error(fmt::format("distributed: '{}' on rank {} is not that of rank 0{}{}", state[i].name,
                            r, when.empty() ? "" : " ", when));
  }
}

}  // namespace steady::distributed
