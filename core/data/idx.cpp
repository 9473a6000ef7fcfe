#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <optional>
#include <steadygrad/core/data/idx.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/gzip.hpp>
#include <utility>

namespace steady {
namespace {

constexpr std::size_t MaxHeader = 4 + 4 * 255;

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::error_code failure;
  const auto status = std::filesystem::status(path, failure);
  STEADY_CHECK(IoError, std::filesystem::exists(status), "read_idx: '{}' does not exist",
               path.string());
  STEADY_CHECK(IoError, std::filesystem::is_regular_file(status),
               "read_idx: '{}' is not a regular file", path.string());
  const auto size = std::filesystem::file_size(path, failure);
  std::ifstream file(path, std::ios::binary);
  STEADY_CHECK(IoError, !failure && file.good(), "read_idx: '{}' cannot be opened", path.string());
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  STEADY_CHECK(IoError, static_cast<std::uintmax_t>(file.gcount()) == size,
               "read_idx: '{}' has {} bytes, but only {} could be read", path.string(), size,
               file.gcount());
  return bytes;
}

/// The bytes behind an IDX file, plain or inflated, in order.
class Source {
 public:
  Source(std::span<const std::byte> file, const std::string& name) : file_(file) {
    if (is_gzip(file)) gzip_.emplace(file, name);
  }

  [[nodiscard]] std::size_t read(std::span<std::byte> out) {
    if (gzip_) return gzip_->read(out);
    const std::size_t count = std::min(out.size(), file_.size() - position_);
    std::copy_n(file_.begin() + static_cast<std::ptrdiff_t>(position_), count, out.begin());
    position_ += count;
    return count;
  }

  /// No more bytes than this can come out.
  [[nodiscard]] std::int64_t most() const {
    return static_cast<std::int64_t>(file_.size()) * (gzip_ ? GzipStream::MaxRatio : 1);
  }
  [[nodiscard]] bool compressed() const { return gzip_.has_value(); }

 private:
  std::span<const std::byte> file_;
  std::size_t position_ = 0;
  std::optional<GzipStream> gzip_;
};

std::int64_t big_endian_32(const std::byte* p) {
  std::int64_t value = 0;
  for (int i = 0; i < 4; ++i) value = value * 256 + std::to_integer<std::int64_t>(p[i]);
  return value;
}

bool known(std::uint8_t type) {
  return type == 0x08 || type == 0x09 || (type >= 0x0B && type <= 0x0E);
}

/// Fills type and dims; returns the size of the header.
std::int64_t read_header(Source& source, IdxArray& array, std::optional<int> rank_wanted) {
  std::array<std::byte, MaxHeader> header;
  std::size_t have = source.read(std::span(header).first(4));
  STEADY_CHECK(IoError, have == 4, "read_idx: '{}' has {} bytes; an IDX header has at least 8",
               array.path, have);
  STEADY_CHECK(IoError, header[0] == std::byte{0} && header[1] == std::byte{0},
               "read_idx: '{}' is no IDX file: it begins with {:02X} {:02X} {:02X} {:02X}; "
               "expected 00 00 type rank",
               array.path, header[0], header[1], header[2], header[3]);
  const auto type = std::to_integer<std::uint8_t>(header[2]);
  const auto rank = std::to_integer<std::uint8_t>(header[3]);
  STEADY_CHECK(IoError, known(type),
               "read_idx: '{}' has element type 0x{:02X} (magic {}); known are 0x08 unsigned byte, "
               "0x09 signed byte, 0x0B 16-bit, 0x0C 32-bit, 0x0D float, 0x0E double",
               array.path, type, big_endian_32(header.data()));
  array.type = static_cast<IdxType>(type);
  STEADY_CHECK(IoError, rank >= 1 && rank_wanted.value_or(rank) == rank,
               "read_idx: '{}' has rank {}, {} (magic {}); rank {} expected", array.path, rank,
               to_string(array.type), big_endian_32(header.data()),
               rank_wanted ? std::to_string(*rank_wanted) : "1 to 255");
  const std::size_t size = 4 + 4 * std::size_t{rank};
  have += source.read(std::span(header).subspan(4, size - 4));
  STEADY_CHECK(IoError, have == size,
               "read_idx: '{}' has {} bytes; the header of rank {} alone has {}", array.path, have,
               rank, size);
  for (std::size_t i = 4; i < size; i += 4) array.dims.push_back(big_endian_32(&header[i]));
  return static_cast<std::int64_t>(size);
}

/// Bytes the header promises for the elements, nothing when they do not fit 63 bits.
std::optional<std::int64_t> promised(const IdxArray& array) {
  if (std::find(array.dims.begin(), array.dims.end(), 0) != array.dims.end()) return 0;
  std::int64_t bytes = size_of(array.type);
  for (const std::int64_t dim : array.dims) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  return bytes;
}

std::string describe(const IdxArray& array) {
  std::string text;
  for (const std::int64_t dim : array.dims)
    text += (text.empty() ? "" : " x ") + std::to_string(dim);
  return fmt::format("{} of type {}", text, to_string(array.type));
}

/// Inflates `size` bytes of elements in steps that double: what is held never exceeds twice what
/// the source has really given.
void read_elements(Source& source, std::int64_t size, std::vector<std::byte>& bytes) {
  const auto wanted = static_cast<std::size_t>(size);
  std::size_t have = 0;
  while (have < wanted) {
    constexpr std::size_t FirstStep = std::size_t{1} << 20;
    bytes.resize(std::min(wanted, std::max(FirstStep, 2 * have)));
    const std::size_t got = source.read(std::span(bytes).subspan(have));
    have += got;
    if (have < bytes.size()) break;
  }
  bytes.resize(have);
}

constexpr std::int64_t ExcessBound = std::int64_t{1} << 20;

/// Bytes left over, counted up to a bound; reading to the end also reaches gzip's checksum.
std::int64_t excess(Source& source) {
  std::array<std::byte, 4096> scratch;
  std::int64_t count = 0;
  while (count < ExcessBound) {
    const std::size_t got = source.read(scratch);
    count += static_cast<std::int64_t>(got);
    if (got < scratch.size()) break;
  }
  return count;
}

void to_host_order(std::span<std::byte> bytes, std::int64_t size) {
  if (std::endian::native == std::endian::big || size == 1) return;
  for (auto at = bytes.begin(); at != bytes.end(); at += size) std::reverse(at, at + size);
}

IdxArray read(const std::filesystem::path& path, std::optional<int> rank) {
  IdxArray array;
  array.path = path.string();
  std::vector<std::byte> file = read_file(path);
  Source source(file, array.path);
  const std::int64_t header = read_header(source, array, rank);
  const std::optional<std::int64_t> size = promised(array);
  STEADY_CHECK(IoError, size && *size <= INT64_MAX - header,
               "read_idx: '{}' promises {}: more bytes than 64 bits count; it has {}", array.path,
               describe(array), file.size());
  STEADY_CHECK(IoError, *size + header <= source.most(),
               "read_idx: '{}' promises {}: {} bytes expected; it has {}{}", array.path,
               describe(array), *size + header, file.size(),
               source.compressed() ? " bytes of gzip data" : "");
  if (source.compressed()) {
    read_elements(source, *size, array.bytes);
  } else {
    // The file's own memory becomes the array's: `source` has been read as far as it will be.
    file.erase(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(header));
    array.bytes = std::move(file);
  }
  const auto have = static_cast<std::int64_t>(array.bytes.size());
  const std::int64_t extra = source.compressed() && have == *size ? excess(source) : 0;
  STEADY_CHECK(IoError, have == *size && extra == 0,
               "read_idx: '{}' promises {}: {} bytes expected; it has {}{}", array.path,
               describe(array), *size + header, extra < ExcessBound ? "" : "at least ",
               have + extra + header);
  to_host_order(array.bytes, size_of(array.type));
  return array;
}

template <class From, class To>
std::vector<To> convert(const IdxArray& array) {
  std::vector<To> result(array.bytes.size() / sizeof(From));
  for (std::size_t i = 0; i < result.size(); ++i) {
    From value;
    std::memcpy(&value, &array.bytes[i * sizeof(From)], sizeof(From));
    result[i] = static_cast<To>(value);
  }
  return result;
}

}  // namespace

std::string_view to_string(IdxType type) {
  switch (type) {
    case IdxType::U8:
      return "unsigned byte";
    case IdxType::I8:
      return "signed byte";
    case IdxType::I16:
      return "16-bit integer";
    case IdxType::I32:
      return "32-bit integer";
    case IdxType::F32:
      return "float";
    case IdxType::F64:
      return "double";
  }
  return "?";
}

std::int64_t size_of(IdxType type) {
  switch (type) {
    case IdxType::U8:
    case IdxType::I8:
      return 1;
    case IdxType::I16:
      return 2;
    case IdxType::I32:
    case IdxType::F32:
      return 4;
    case IdxType::F64:
      break;
  }
  return 8;
}

std::int64_t IdxArray::numel() const {
  return static_cast<std::int64_t>(bytes.size()) / size_of(type);
}

IdxArray read_idx(const std::filesystem::path& path) { return read(path, std::nullopt); }

IdxArray read_idx(const std::filesystem::path& path, int rank) { return read(path, rank); }

std::vector<float> to_float(const IdxArray& array) {
  switch (array.type) {
    case IdxType::U8:
      return convert<std::uint8_t, float>(array);
    case IdxType::I8:
      return convert<std::int8_t, float>(array);
    case IdxType::I16:
      return convert<std::int16_t, float>(array);
    case IdxType::I32:
      return convert<std::int32_t, float>(array);
    case IdxType::F32:
      return convert<float, float>(array);
    case IdxType::F64:
      break;
  }
  return convert<double, float>(array);
}

std::vector<std::int64_t> to_int64(const IdxArray& array) {
  switch (array.type) {
    case IdxType::U8:
      return convert<std::uint8_t, std::int64_t>(array);
    case IdxType::I8:
      return convert<std::int8_t, std::int64_t>(array);
    case IdxType::I16:
      return convert<std::int16_t, std::int64_t>(array);
    case IdxType::I32:
      return convert<std::int32_t, std::int64_t>(array);
    case IdxType::F32:
    case IdxType::F64:
      break;
  }
  throw IoError(fmt::format("read_idx: '{}' holds elements of type {}; integers expected",
                            array.path, to_string(array.type)));
}

}  // namespace steady
