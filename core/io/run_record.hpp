#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <steadygrad/core/io/hdf5.hpp>
#include <steadygrad/core/io/run_log.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace steady {

/// A series of a log: row i belongs to step[i].
struct RunSeries {
  SeriesPath path;
  std::vector<std::int64_t> step;
  std::vector<std::string> names;           ///< of the columns, without step and histogram
  std::vector<std::vector<double>> values;  ///< [column][row]
  std::int64_t bins = 0;                    ///< 0: no histogram
  std::vector<std::int64_t> histogram;      ///< [row][bin]

  /// The column of that name; throws Error naming those there are.
  [[nodiscard]] const std::vector<double>& column(std::string_view name) const;
  /// The histogram of a row.
  [[nodiscard]] std::span<const std::int64_t> histogram_of(std::size_t row) const {
    return std::span(histogram).subspan(row * static_cast<std::size_t>(bins),
                                        static_cast<std::size_t>(bins));
  }
};

/// A log read back.
struct RunRecord {
  hdf5::Attributes facts;    ///< what computed: versions, SIMD target, threads
  hdf5::Attributes options;  ///< what the run was given
  hdf5::Attributes results;  ///< what it said at the end
  bool complete = false;     ///< closed; false for a run that was stopped
  std::vector<RunSeries> series;

  /// The series there, or null.
  [[nodiscard]] const RunSeries* find(const SeriesPath& path) const;
};

/// The value of that name, or null.
[[nodiscard]] const hdf5::Value* find(const hdf5::Attributes& attributes, std::string_view name);

/// Which series to read; empty: all.
using SeriesFilter = std::function<bool(const SeriesPath& path)>;

/// Reads a log that RunLog wrote. Throws IoError, naming file and object, for a file that is
/// missing, damaged or something else.
[[nodiscard]] RunRecord read_run(const std::filesystem::path& path,
                                 const SeriesFilter& wanted = {});

}  // namespace steady
