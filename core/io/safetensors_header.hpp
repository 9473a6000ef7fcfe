#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <steadygrad/core/io/safetensors_types.hpp>
#include <string>
#include <vector>

/// The safetensors format: 8 bytes with the length of a header, little-endian; the header, a JSON
/// object {name: {"dtype", "shape", "data_offsets"}, "__metadata__": {text: text}}; the elements of
/// all tensors, row-major and little-endian. Offsets count from the end of the header; the tensors
/// cover everything behind it, without holes and without overlap.
namespace steady::safetensors {

struct ReadOptions {
  /// Accept bytes behind the last tensor, which the format forbids but published files have.
  bool allow_trailing_bytes = false;
};

/// The longest header that is read: the format's own limit.
inline constexpr std::uint64_t MaxHeaderBytes = 100'000'000;
/// The most dimensions of a tensor in a file. A Tensor has at most Shape::MaxRank.
inline constexpr std::size_t MaxRank = 64;

struct Header {
  std::vector<TensorInfo> tensors;  ///< in the order of their data
  Metadata metadata;
  std::uint64_t data_begin = 0;     ///< in the file
  std::uint64_t ignored_bytes = 0;  ///< behind the last tensor
};

/// Reads the header of a whole file. The file is not trusted: the length is held against the real
/// size before anything is allocated, nothing is computed that could overflow, the JSON reader does
/// not recurse and knows no structure deeper than the format's, and what it keeps is in proportion
/// to the header. `file` names it in messages. Throws IoError that names file, tensor and field:
///   length     none; above MaxHeaderBytes; beyond the file
///   JSON       not an object that begins at once; bad syntax; not UTF-8; a name or field twice;
///              fields other than the three; anything but non-negative integers as a dimension or
///              offset; metadata that are not text; more than MaxRank dimensions
///   tensors    a type that is not in Type; a product of the non-zero dimensions, in bytes, beyond
///              int64; a range that is reversed, beyond the data, or of another size than dtype and
///              shape; overlaps, holes, bytes behind the last tensor
[[nodiscard]] Header read_header(std::span<const std::byte> bytes, const std::string& file,
                                 const ReadOptions& options = {});

}  // namespace steady::safetensors
