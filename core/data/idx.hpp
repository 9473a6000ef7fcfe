#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace steady {

/// Element type of an IDX file: the third byte of its header.
enum class IdxType : std::uint8_t {
  U8 = 0x08,
  I8 = 0x09,
  I16 = 0x0B,
  I32 = 0x0C,
  F32 = 0x0D,
  F64 = 0x0E
};

/// "unsigned byte", "signed byte", "16-bit integer", "32-bit integer", "float", "double".
[[nodiscard]] std::string_view to_string(IdxType type);
/// Bytes of one element.
[[nodiscard]] std::int64_t size_of(IdxType type);

/// The content of an IDX file: a dense row-major array of any rank from 1 to 255.
struct IdxArray {
  IdxType type = IdxType::U8;
  std::vector<std::int64_t> dims;
  std::vector<std::byte> bytes;  // elements in the byte order of this machine
  std::string path;              // for the errors of those who use it

  /// Product of the dims.
  [[nodiscard]] std::int64_t numel() const;
};

/// Reads an IDX file (the format of MNIST): 00 00 type rank, `rank` big-endian 32-bit sizes, then
/// the elements, big-endian. Gzip data are recognised by their first bytes and inflated, whatever
/// the file's name. The file is not trusted: the header's product is formed in checked 64 bits and
/// held against the real size before anything is allocated for it; a file too short or too long,
/// an unknown type, rank 0 and damaged gzip data are an IoError that names the file and both
/// numbers. Gzip data are inflated no further than a little beyond what the header promises.
[[nodiscard]] IdxArray read_idx(const std::filesystem::path& path);
/// The same, and refuses any other rank before it reads the elements.
[[nodiscard]] IdxArray read_idx(const std::filesystem::path& path, int rank);

/// The elements as float, rounded to nearest.
[[nodiscard]] std::vector<float> to_float(const IdxArray& array);
/// The elements of an integer array. Throws IoError for float and double.
[[nodiscard]] std::vector<std::int64_t> to_int64(const IdxArray& array);

}  // namespace steady
