#include <steadygrad/core/io/safetensors_types.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace steady::safetensors {
namespace {

struct TypeRow {
  Type type;
  std::string_view name;
  std::int64_t size;
  Dtype ours;
};

constexpr std::array<TypeRow, 9> Types{{{Type::Bool, "BOOL", 1, Dtype::I32},
                                        {Type::U8, "U8", 1, Dtype::I32},
                                        {Type::I8, "I8", 1, Dtype::I32},
                                        {Type::F16, "F16", 2, Dtype::F32},
                                        {Type::BF16, "BF16", 2, Dtype::F32},
                                        {Type::I32, "I32", 4, Dtype::I32},
                                        {Type::F32, "F32", 4, Dtype::F32},
                                        {Type::F64, "F64", 8, Dtype::F64},
                                        {Type::I64, "I64", 8, Dtype::I64}}};

const TypeRow& row(Type type) { return Types[static_cast<std::size_t>(type)]; }

}  // namespace

std::string_view to_string(Type type) { return row(type).name; }
std::int64_t size_of(Type type) { return row(type).size; }
Dtype natural_dtype(Type type) { return row(type).ours; }

std::optional<Type> parse_type(std::string_view name) {
  const auto at = std::ranges::find(Types, name, &TypeRow::name);
  return at == Types.end() ? std::nullopt : std::optional(at->type);
}

std::string known_types() {
  std::string text;
  for (const TypeRow& r : Types) text += (text.empty() ? "" : ", ") + std::string(r.name);
  return text;
}

Type type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32:
      return Type::F32;
    case Dtype::F64:
      return Type::F64;
    case Dtype::I32:
      return Type::I32;
    case Dtype::I64:
      break;
  }
  return Type::I64;
}

std::int64_t TensorInfo::numel() const {
  return static_cast<std::int64_t>(end - begin) / size_of(type);
}

std::string describe(const TensorInfo& info) {
  return fmt::format("{} [{}]", to_string(info.type), fmt::join(info.dims, ", "));
}

std::string shown(std::string_view text, std::size_t most) {
  std::string result;
  for (const char c : text.substr(0, most)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      result += fmt::format("\\x{:02X}", byte);
    } else {
      result += c;
    }
  }
  return text.size() > most ? result + "..." : result;
}

}  // namespace steady::safetensors
