#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace steady {

/// True when `data` begins with the gzip signature 1F 8B.
[[nodiscard]] bool is_gzip(std::span<const std::byte> data);

/// Inflates gzip data (RFC 1952) that lies in memory, piece by piece, so that the reader decides
/// how much it is willing to hold. Concatenated members read as one stream, zero bytes after the
/// last member are padding. Checksums and lengths are verified at the end of each member.
/// The data must outlive the stream. Every error is an IoError that names `name`.
class GzipStream {
 public:
  /// No input expands further than this under deflate: 258 bytes from two bits, rounded up.
  static constexpr std::int64_t MaxRatio = 1032;

  GzipStream(std::span<const std::byte> data, std::string name);
  ~GzipStream();
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  /// Fills `out` as far as the data reach and returns the number of bytes written: fewer than
  /// out.size() only at the end of the last member. Throws IoError for a wrong checksum or length,
  /// for data that end early and for anything but members and padding.
  [[nodiscard]] std::size_t read(std::span<std::byte> out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace steady
