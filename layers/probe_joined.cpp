#include <steadygrad/layers/probe_joined.hpp>

#include <algorithm>
#include <cmath>
#include <steadygrad/core/error.hpp>

namespace steady {
namespace {

/// Of a fraction of the elements of each part.
double joined_fraction(double first, std::int64_t n, double second, std::int64_t m) {
  const double all = static_cast<double>(n) + static_cast<double>(m);
  return (first * static_cast<double>(n) + second * static_cast<double>(m)) / all;
}

std::string what_was_seen(const ProbeStep& step) {
  std::string text = fmt::format("step {}\n", step.step);
  for (const ProbeSample& s : step.samples) {
    text += fmt::format("{} {} {}\n", s.path, to_string(s.what), s.call);
  }
  for (const ProbeMeasure& m : step.measures) {
    text += fmt::format("{} {} {}\n", m.path, m.name, m.call);
  }
  return text;
}

double joined_measure(std::string_view name, std::span<const double> values) {
  if (name.ends_with("_min")) return std::ranges::min(values);
  if (name.ends_with("_max")) return std::ranges::max(values);
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

void join_samples(ProbeStep& step, distributed::Communicator& ranks) {
  std::vector<TensorStats> mine;
  for (const ProbeSample& s : step.samples) mine.push_back(s.stats);
  const std::vector<TensorStats> all = ranks.all_gather(std::span<const TensorStats>(mine));
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const Observed what = step.samples[i].what;
    TensorStats joined = all[i];
    if (what != Observed::Parameter && what != Observed::Update) {
      for (std::size_t at = i + mine.size(); at < all.size(); at += mine.size()) {
        joined = merge(joined, all[at]);
      }
    }
    step.samples[i].stats = joined;
  }
}

void join_measures(ProbeStep& step, distributed::Communicator& ranks) {
  std::vector<double> mine;
  for (const ProbeMeasure& m : step.measures) mine.push_back(m.value);
  const std::vector<double> all = ranks.all_gather(std::span<const double>(mine));
  for (std::size_t i = 0; i < mine.size(); ++i) {
    std::vector<double> values;
    for (std::size_t at = i; at < all.size(); at += mine.size()) values.push_back(all[at]);
    step.measures[i].value = joined_measure(step.measures[i].name, values);
  }
}

}  // namespace

TensorStats merge(const TensorStats& first, const TensorStats& second) {
  if (second.count == 0) return first;
  if (first.count == 0) return second;
  TensorStats all;
  all.count = first.count + second.count;
  all.zeros = joined_fraction(first.zeros, first.count, second.zeros, second.count);
  all.non_finite = joined_fraction(first.non_finite, first.count, second.non_finite, second.count);
  for (std::size_t i = 0; i < all.histogram.size(); ++i) {
    all.histogram[i] = first.histogram[i] + second.histogram[i];
  }
  // Moments are of the finite elements.
  const double n = static_cast<double>(first.count) * (1 - first.non_finite);
  const double m = static_cast<double>(second.count) * (1 - second.non_finite);
  const TensorStats* only = m <= 0 ? &first : n <= 0 ? &second : nullptr;
  if (only != nullptr) {
    all.mean = only->mean;
    all.std = only->std;
    all.rms = only->rms;
    all.max_abs = only->max_abs;
    return all;
  }
  const double share = m / (n + m);
  const double apart = second.mean - first.mean;
  all.mean = first.mean + apart * share;
  all.std = std::sqrt(first.std * first.std * (1 - share) + second.std * second.std * share +
                      apart * apart * share * (1 - share));
  all.rms = std::sqrt(first.rms * first.rms * (1 - share) + second.rms * second.rms * share);
  all.max_abs = std::max(first.max_abs, second.max_abs);
  return all;
}

ProbeSink join_probe(ProbeSink sink, distributed::Communicator& ranks) {
  if (ranks.size() == 1) return sink;
  return [sink = std::move(sink), &ranks](const ProbeStep& seen) {
    distributed::check_same_text(ranks, "join_probe: what the probe saw", what_was_seen(seen));
    ProbeStep step = seen;
    join_samples(step, ranks);
    join_measures(step, ranks);
    if (ranks.rank() == 0) sink(step);
  };
}

}  // namespace steady
