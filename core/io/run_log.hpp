#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <steadygrad/core/io/hdf5.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace steady {

/// Where a series lies in a log, from group to dataset: {"layers", "norm1", "output"}. The parts
/// may hold any characters.
using SeriesPath = std::vector<std::string>;

/// One number of a row.
struct LogValue {
  std::string_view name;
  double value;
};

/// Options of RunLog.
struct RunLogOptions {
  /// Seconds after which append() flushes by itself, negative: never. More where a flush takes
  /// long, so that flushing never takes more than a fiftieth of the time.
  double flush_seconds = 2.0;
};

/// The log of one run, one HDF5 file. At every moment the file on disk is the whole log as it was
/// at the last flush: a run that is killed leaves it so, readable by read_run, h5py and h5dump.
///
///   /             attributes: format, complete (1 after close()), and what computed: steadygrad,
///                 libraries, simd, threads, hdf5
///   /options      attributes: the options given to the constructor
///   /results      attributes: what set() was told
///   /A/B/C        a series: resizable table of records {step int64, float64 ..., histogram
///   int64[]}
///
/// Nothing in it depends on the time: equal runs give equal files. Used from one thread.
class RunLog {
 public:
  /// Begins a log; a file at `path` is replaced. `options`: everything needed to repeat the run.
  /// Throws IoError when the file cannot be written, Error for an option given twice.
  explicit RunLog(std::filesystem::path path, const hdf5::Attributes& options = {},
                  RunLogOptions log_options = {});
  /// Flushes; errors pass in silence here, so call close().
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// Sets a result of the run, replacing one of that name.
  void set(std::string_view name, const hdf5::Value& value);

  /// Adds a row to a series, which begins with its first row. Throws Error when later rows have
  /// other names or another length of histogram, for a name that is given twice or reserved
  /// ("step", "histogram"), for a path of less than two parts or that runs through another series.
  void append(const SeriesPath& series, std::int64_t step, std::span<const LogValue> cells,
              std::span<const std::int64_t> histogram = {});
  void append(const SeriesPath& series, std::int64_t step, std::initializer_list<LogValue> cells,
              std::span<const std::int64_t> histogram = {}) {
    append(series, step, std::span(cells.begin(), cells.size()), histogram);
  }

  /// Puts everything so far into the file. Throws IoError.
  void flush();
  /// Marks the log as complete and flushes. Later calls of append and set throw Error.
  void close();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  struct Series {
    hdf5::Table table;
    std::vector<std::uint64_t> waiting;  // words of records not yet in the table
  };
  Series& series_at(const SeriesPath& path, std::span<const LogValue> cells,
                    std::span<const std::int64_t> histogram);
  hdf5::Table make_table(const SeriesPath& path, std::vector<hdf5::Column> columns);
  void write();

  std::filesystem::path path_;
  RunLogOptions o_;
  hdf5::File file_;
  std::map<SeriesPath, Series> series_;
  bool closed_ = false;
  std::chrono::steady_clock::time_point flushed_;
  std::chrono::steady_clock::duration flush_takes_{};
};

}  // namespace steady
