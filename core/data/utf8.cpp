#include <steadygrad/core/data/utf8.hpp>

#include <cstddef>
#include <cstdint>
#include <steadygrad/core/error.hpp>

namespace steady {
namespace {

constexpr char32_t LastCodePoint = 0x10FFFF;

bool is_surrogate(char32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

/// What the first byte of a sequence says: its length (0: no first byte), the bits of the code
/// point in it, and the least code point that needs that many bytes.
struct Lead {
  std::size_t length;
  char32_t bits;
  char32_t least;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, byte, 0};
  if (byte >= 0xC2 && byte < 0xE0) return {2, byte & 0x1FU, 0x80};
  if (byte >= 0xE0 && byte < 0xF0) return {3, byte & 0x0FU, 0x800};
  if (byte >= 0xF0 && byte < 0xF5) return {4, byte & 0x07U, 0x10000};
  return {0, 0, 0};
}

}  // namespace

std::vector<char32_t> decode_utf8(std::string_view text, std::string_view source) {
  std::vector<char32_t> points;
  points.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[at + k]); };
    const Lead lead = lead_of(byte(0));
    bool valid = lead.length > 0 && at + lead.length <= text.size();
    char32_t point = lead.bits;
    for (std::size_t k = 1; valid && k < lead.length; ++k) {
      valid = (byte(k) & 0xC0U) == 0x80U;
      point = point << 6U | (byte(k) & 0x3FU);
    }
    valid = valid && point >= lead.least && point <= LastCodePoint && !is_surrogate(point);
    STEADY_CHECK(IoError, valid,
                 "decode_utf8: '{}' is not UTF-8 at byte {} (0x{:02X}); bytes are read as they are "
                 "with TextUnit::Byte",
                 source, at, byte(0));
    points.push_back(point);
    at += lead.length;
  }
  return points;
}

void append_utf8(std::string& text, char32_t c) {
  STEADY_CHECK(Error, c <= LastCodePoint && !is_surrogate(c),
               "append_utf8: U+{:04X} is not a character", static_cast<std::uint32_t>(c));
  const auto push = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  const auto tail = [&](unsigned shift) { push(0x80U | (c >> shift & 0x3FU)); };
  if (c < 0x80) {
    push(c);
  } else if (c < 0x800) {
    push(0xC0U | c >> 6U);
    tail(0);
  } else if (c < 0x10000) {
    push(0xE0U | c >> 12U);
    tail(6);
    tail(0);
  } else {
    push(0xF0U | c >> 18U);
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string describe_character(char32_t c) {
  std::string number = fmt::format("U+{:04X}", static_cast<std::uint32_t>(c));
  const bool control = c < 0x20 || (c >= 0x7F && c < 0xA0);
  if (control || is_surrogate(c) || c > LastCodePoint) return number;
  std::string text = "'";
  append_utf8(text, c);
  return text + "' (" + number + ")";
}

}  // namespace steady
