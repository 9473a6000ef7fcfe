#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace steady {

/// What one token of a text is. Character: a Unicode code point of UTF-8. Byte: a byte, any file.
enum class TextUnit : std::uint8_t { Character, Byte };

/// The tokens of a text and their numbers.
class Vocabulary {
 public:
  /// The 256 bytes, each its own number.
  [[nodiscard]] static Vocabulary bytes();
  /// The different characters in `text`, numbered in the order of their code points. Throws IoError
  /// as decode_utf8.
  [[nodiscard]] static Vocabulary characters_of(std::string_view text);
  /// A saved vocabulary: see characters(). Throws Error unless they rise.
  [[nodiscard]] static Vocabulary from_characters(std::vector<char32_t> characters);

  [[nodiscard]] TextUnit unit() const { return unit_; }
  [[nodiscard]] std::int64_t size() const {
    return unit_ == TextUnit::Byte ? 256 : static_cast<std::int64_t>(characters_.size());
  }
  /// The character of each number; empty for bytes.
  [[nodiscard]] const std::vector<char32_t>& characters() const { return characters_; }

  /// The numbers of a text's tokens. Throws Error naming the first character that is not in the
  /// vocabulary and its place, IoError for text that is not UTF-8.
  [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text) const;
  /// The text of numbers; throws Error naming the first one outside [0, size()) and its place.
  [[nodiscard]] std::string decode(std::span<const std::int64_t> ids) const;

 private:
  Vocabulary(TextUnit unit, std::vector<char32_t> characters)
      : unit_(unit), characters_(std::move(characters)) {}

  TextUnit unit_;
  std::vector<char32_t> characters_;  // sorted
};

}  // namespace steady
