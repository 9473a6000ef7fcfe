#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <steadygrad/core/tensor.hpp>
#include <string_view>

namespace steady {

/// Options of EventFile.
struct EventFileOptions {
  double flush_seconds = 2.0;           ///< scalar() and histogram() flush after as long
  std::function<double()> wall_time{};  ///< seconds since 1970; the system's clock by default
};

/// A histogram: counts[i] values lie in (edges[i - 1], edges[i]], those of the first bucket at or
/// below edges[0]. sum and sum_squares are of the values themselves.
struct EventHistogram {
  double min = 0;
  double max = 0;
  double sum = 0;
  double sum_squares = 0;
  std::span<const double> edges{};
  std::span<const std::int64_t> counts{};
};

/// Whether the library was built with protobuf, which EventFile needs.
[[nodiscard]] bool has_event_files();

/// A file of events that TensorBoard shows: scalars and histograms by tag ("train/loss") and step.
/// Each record carries its length and two masked CRC-32C sums, as the format asks. Used from one
/// thread. Errors are IoError and name the file; the file then ends at a whole record.
class EventFile {
 public:
  /// Makes `directory` and a new file in it, events.out.tfevents.SECONDS.NUMBER.steadygrad. Throws
  /// IoError when it cannot be made, Error when the library was built without protobuf.
  explicit EventFile(const std::filesystem::path& directory, const EventFileOptions& options = {});
  /// Closes; errors pass in silence here, so call close().
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// A number; NaN and infinities are kept. It is stored as f32.
  void scalar(std::string_view tag, std::int64_t step, double value);
  /// Throws Error unless there are as many counts as edges, and one or more.
  void histogram(std::string_view tag, std::int64_t step, const EventHistogram& histogram);
  /// The finite elements of an f32 or f64 tensor in 30 equal bins from the least to the greatest.
  void histogram(std::string_view tag, std::int64_t step, const Tensor& values);
  void flush();
  /// Flushes and closes. Later calls throw Error.
  void close();
  [[nodiscard]] const std::filesystem::path& path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// CRC-32C (Castagnoli, polynomial 0x1EDC6F41 reflected) of bytes.
[[nodiscard]] std::uint32_t crc32c(std::span<const char> bytes);

}  // namespace steady
