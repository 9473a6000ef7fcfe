#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <steadygrad/core/dtype.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace steady::safetensors {

/// Element types that are read and written, in the order in which files are written (last first).
enum class Type : std::uint8_t { Bool, U8, I8, F16, BF16, I32, F32, F64, I64 };

/// As the format spells it: "BOOL", "U8", "I8", "F16", "BF16", "I32", "F32", "F64", "I64".
[[nodiscard]] std::string_view to_string(Type type);
/// The type of that name; nothing for any other text.
[[nodiscard]] std::optional<Type> parse_type(std::string_view name);
/// All names, with commas.
[[nodiscard]] std::string known_types();
/// Bytes of one element.
[[nodiscard]] std::int64_t size_of(Type type);
/// The type of our tensors that holds all its values: F16 and BF16 are f32, I8, U8 and BOOL i32.
[[nodiscard]] Dtype natural_dtype(Type type);
/// The type that a tensor of ours has in a file.
[[nodiscard]] Type type_of(Dtype dtype);

/// One tensor of a file.
struct TensorInfo {
  std::string name;
  Type type = Type::F32;
  std::vector<std::int64_t> dims;
  std::uint64_t begin = 0;  ///< in the file's data, behind the header
  std::uint64_t end = 0;

  /// Product of the dims.
  [[nodiscard]] std::int64_t numel() const;
};

/// "F32 [2, 3]".
[[nodiscard]] std::string describe(const TensorInfo& info);

/// Texts by name, in their order.
using Metadata = std::vector<std::pair<std::string, std::string>>;

/// A text of a foreign file as messages show it: at most `most` bytes, control characters as their
/// hexadecimal codes.
[[nodiscard]] std::string shown(std::string_view text, std::size_t most = 80);

}  // namespace steady::safetensors
