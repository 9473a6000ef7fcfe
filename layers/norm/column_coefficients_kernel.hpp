#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/layers/norm/column_lines_kernel.hpp>
#include <steadygrad/layers/norm/column_plan.hpp>
#include <steadygrad/layers/norm/column_stats.hpp>

namespace steady::detail {

/// The coefficients of a piece of a line, the channels repeated as they are in it. Aligned: a
/// vector that straddles two cache lines halves the speed of the loops that read these.
template <class T>
struct alignas(64) Coefficients {
  T at[ColumnPlan::ColumnBlock];

  Coefficients(const ColumnPlan& plan, std::span<const T> values, std::int64_t column,
               std::int64_t columns) {
    if (values.empty()) return;
    plan.for_channels(column, columns, [&](std::int64_t j, std::int64_t c) {
      at[j] = values[static_cast<std::size_t>(c)];
    });
  }
};

/// Those of a gate, if there is one.
template <class T>
struct GateCoefficients {
  Coefficients<T> scale, shift;
  bool gate;

  GateCoefficients(const ColumnPlan& plan, const ColumnGate<T>& g, std::int64_t column,
                   std::int64_t columns)
      : scale(plan, g.scale, column, columns),
        shift(plan, g.shift, column, columns),
        gate(!g.scale.empty()) {}

  [[nodiscard]] GateLines<T> lines() const {
    return gate ? GateLines<T>{scale.at, shift.at} : GateLines<T>{};
  }
};

}  // namespace steady::detail
