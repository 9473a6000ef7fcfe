#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/gzip.hpp>
#include <utility>

namespace steady {

bool is_gzip(std::span<const std::byte> data) {
  return data.size() >= 2 && data[0] == std::byte{0x1F} && data[1] == std::byte{0x8B};
}

struct GzipStream::State {
  z_stream zlib{};
  std::span<const std::byte> rest;  // input that zlib has not been given yet
  std::string name;
  bool member_ended = false;
  bool finished = false;

  [[nodiscard]] bool exhausted() const { return zlib.avail_in == 0 && rest.empty(); }

  // zlib counts in 32 bits: larger inputs go in slices.
  void feed() {
    if (zlib.avail_in != 0 || rest.empty()) return;
    const std::size_t slice = std::min(rest.size(), std::size_t{1} << 30);
    zlib.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest.data()));
    zlib.avail_in = static_cast<uInt>(slice);
    rest = rest.subspan(slice);
  }

  // Between members: skips padding, then either starts the next member or finishes.
  void next_member() {
    bool padded = false;
    for (feed(); zlib.avail_in > 0 && *zlib.next_in == 0; feed()) {
      padded = true;
      ++zlib.next_in;
      --zlib.avail_in;
    }
    finished = exhausted();
    if (finished) return;
    STEADY_CHECK(IoError, !padded && *zlib.next_in == 0x1F,
                 "gunzip: '{}' has bytes after the end of the gzip data that are no further member",
                 name);
    STEADY_CHECK(IoError, inflateReset(&zlib) == Z_OK, "gunzip: '{}': zlib cannot restart", name);
    member_ended = false;
  }

  void inflate_some() {
    feed();
    const int code = inflate(&zlib, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
      member_ended = true;
      return;
    }
    const bool starved = (code == Z_OK || code == Z_BUF_ERROR) && exhausted() && zlib.avail_out > 0;
    STEADY_CHECK(IoError, !starved, "gunzip: '{}' ends in the middle of its gzip data (truncated)",
                 name);
    STEADY_CHECK(IoError, code == Z_OK || code == Z_BUF_ERROR,
                 "gunzip: '{}' holds damaged gzip data: {}", name,
                 zlib.msg != nullptr ? zlib.msg : "zlib gives no reason");
  }
};

GzipStream::GzipStream(std::span<const std::byte> data, std::string name)
    : state_(std::make_unique<State>()) {
  state_->rest = data;
  state_->name = std::move(name);
  constexpr int GzipOnly = 16 + MAX_WBITS;
  STEADY_CHECK(IoError, inflateInit2(&state_->zlib, GzipOnly) == Z_OK,
               "gunzip: '{}': zlib cannot start", state_->name);
}

GzipStream::~GzipStream() { inflateEnd(&state_->zlib); }

std::size_t GzipStream::read(std::span<std::byte> out) {
  State& s = *state_;
  std::size_t written = 0;
  while (written < out.size() && !s.finished) {
    if (s.member_ended) {
      s.next_member();
      continue;
    }
    const std::size_t piece = std::min(out.size() - written, std::size_t{1} << 30);
    s.zlib.next_out = reinterpret_cast<Bytef*>(out.data() + written);
    s.zlib.avail_out = static_cast<uInt>(piece);
    s.inflate_some();
    written += piece - s.zlib.avail_out;
  }
  return written;
}

}  // namespace steady
