#pragma once

#include <cstdint>
#include <string>

namespace steady {

/// A text that needs no download, whose best possible loss is known.
struct MarkovOptions {
  std::int64_t length = 500'000;  ///< characters, at least 1
  std::int64_t alphabet = 16;     ///< 2 to 27: the space and letters from 'a' on
  std::uint64_t seed = 1;         ///< of the chain and of the text
};

struct MarkovText {
  std::string text;
  /// What no model of any order can do better than on average: nats per character.
  double entropy = 0.0;
};

/// Draws a Markov chain of order 2, P(c | a, b) proportional to u^8 with u uniform in (0, 1) for
/// each triple, and a text from it. The entropy is that of the chain's stationary distribution p:
///   H = - sum over a, b, c of p(a, b) P(c | a, b) log P(c | a, b)            [Shannon 1948, sec.
///   7]
/// A function of the options alone, the same on every machine. Throws Error for options out of
/// range.
[[nodiscard]] MarkovText make_markov_text(const MarkovOptions& options = {});

}  // namespace steady
