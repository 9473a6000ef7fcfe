#pragma once

#include <steadygrad/core/io/run_log.hpp>
#include <steadygrad/layers/probe.hpp>

namespace steady {

/// A sink that writes what a probe sees into a log, which must outlive it:
///
///   /layers/PATH/input, output, output_gradient     columns count, mean, std, rms, max_abs, zeros,
///   /parameters/NAME/value, gradient, update        non_finite (TensorStats) and the histogram
///   /layers/PATH/MEASURE, /parameters/NAME/MEASURE  column value
///
/// Later calls of a layer in one step lie beside the first: output#1, output#2.
[[nodiscard]] ProbeSink log_probe(RunLog& log);

}  // namespace steady
