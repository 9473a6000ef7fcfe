#include <steadygrad/core/data/markov.hpp>

#include <algorithm>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/random.hpp>
#include <vector>

namespace steady {
namespace {

/// P(c | a, b) at [(a * k + b) * k + c].
struct Chain {
  std::size_t k;
  std::vector<double> p;

  Chain(std::size_t alphabet, std::uint64_t seed) : k(alphabet), p(k * k * k) {
    Random random(seed, "markov/chain");
    for (std::size_t pair = 0; pair < k * k; ++pair) {
      double* const row = p.data() + pair * k;
      double sum = 0.0;
      for (std::size_t c = 0; c < k; ++c) {
        // 1 - uniform() is in (0, 1]: every transition is possible, so the chain forgets its start.
        const double u = 1.0 - random.uniform();
        const double u2 = u * u;
        row[c] = u2 * u2 * u2 * u2;
        sum += row[c];
      }
      for (std::size_t c = 0; c < k; ++c) row[c] /= sum;
    }
  }

  /// The distribution of pairs that a step of the chain keeps, by repeating the step.
  [[nodiscard]] std::vector<double> stationary() const {
    std::vector<double> now(k * k, 1.0 / static_cast<double>(k * k));
    std::vector<double> next(k * k);
    for (int round = 0; round < 1000; ++round) {
      std::ranges::fill(next, 0.0);
      for (std::size_t pair = 0; pair < k * k; ++pair) {
        const std::size_t b = pair % k;
        for (std::size_t c = 0; c < k; ++c) next[b * k + c] += now[pair] * p[pair * k + c];
      }
      double change = 0.0;
      for (std::size_t i = 0; i < k * k; ++i) change += std::abs(next[i] - now[i]);
      now.swap(next);
      if (change < 1e-14) break;
    }
    return now;
  }

  [[nodiscard]] double entropy() const {
    const std::vector<double> pairs = stationary();
    double h = 0.0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      if (p[i] > 0.0) h -= pairs[i / k] * p[i] * std::log(p[i]);
    }
    return h;
  }
};

}  // namespace

MarkovText make_markov_text(const MarkovOptions& options) {
  STEADY_CHECK(Error, options.length >= 1 && options.alphabet >= 2 && options.alphabet <= 27,
               "make_markov_text: needs length >= 1 and alphabet in [2, 27]; got {} and {}",
               options.length, options.alphabet);
  const Chain chain(static_cast<std::size_t>(options.alphabet), options.seed);
  const std::size_t k = chain.k;
  Random random(options.seed, "markov/text");
  MarkovText result{std::string(static_cast<std::size_t>(options.length), ' '), chain.entropy()};
  std::size_t pair = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(k * k)));
  for (char& letter : result.text) {
    const double* const row = chain.p.data() + pair * k;
    const double u = random.uniform();
    std::size_t c = 0;
    for (double sum = row[0]; c + 1 < k && u >= sum; sum += row[c]) ++c;
    letter = c == 0 ? ' ' : static_cast<char>('a' + static_cast<int>(c) - 1);
    pair = pair % k * k + c;
  }
  return result;
}

}  // namespace steady
