#pragma once

#include <string>
#include <vector>

#include "examples/study/results.hpp"

namespace steady::examples {

/// A figure with what a reader needs beside it. The caption says what was measured, in numbers
/// taken from the results, never what was hoped for.
struct Figure {
  std::string id;       ///< file name without ending
  std::string caption;  ///< what it shows, how it is defined, what came out
  std::string svg;
  std::string csv;  ///< the numbers that are drawn
};

/// The figures of an answer, as its question's kind asks:
///   profile    gradient RMS and activation RMS against depth for the deepest runs, heat maps of
///   the
///              gradient over layers and steps
///   loss       loss against steps
///   stability  what became of each run over a learning rate or a scale
///   batch      validation error against batch size
///   curvature  change of the gradient along itself, with sharpness and signal to noise
///   growth     squared gradient norm against depth at initialization, rates beside the theory
/// Empty when no result is there.
[[nodiscard]] std::vector<Figure> make_figures(const Answer& answer);

/// What the measures mean, as (name, definition) pairs.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> measure_definitions();

}  // namespace steady::examples
