#pragma once

#include <string>
#include <vector>

namespace steady::examples {

/// A line of a plot.
struct Curve {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;
};

/// Axes of a plot.
struct Axes {
  std::string x;
  std::string y;
  bool log_x = false;
  bool log_y = false;
  bool points = true;  ///< a mark at every value
};

/// A cell of a map: column, row, and what happened there.
struct MapCell {
  double x;
  std::size_t row;
  double value;
  bool good;      ///< drawn by value; else by kind
  bool diverged;  ///< else stalled
};

/// Plots as SVG, without a background and with currentColor for text and axes, so that they are
/// readable on light and dark pages. Values that are not finite, or not positive on a logarithmic
/// axis, are left out. Throw Error when gnuplot is missing (naming its package) or fails.
[[nodiscard]] std::string plot_curves(const std::string& title, const Axes& axes,
                                      const std::vector<Curve>& curves);
/// Rows of log10(value) over columns; z[row][column].
[[nodiscard]] std::string plot_heat(const std::string& title, const Axes& axes,
                                    const std::vector<std::string>& column_names,
                                    const std::vector<std::string>& row_names,
                                    const std::vector<std::vector<double>>& z);
/// One square per cell; rows are named.
[[nodiscard]] std::string plot_map(const std::string& title, const Axes& axes,
                                   const std::vector<std::string>& rows,
                                   const std::vector<MapCell>& cells);

/// The SVG as a file of its own: with a light background, dark where the reader prefers it.
[[nodiscard]] std::string standalone_svg(const std::string& svg);

}  // namespace steady::examples
