#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace steady {

/// The code points of UTF-8 text. Strict: an overlong form, a surrogate, a value above U+10FFFF, a
/// stray or a missing continuation byte is an IoError that names `source` and the byte offset of
/// the sequence. A byte order mark at the beginning is a character like any other.
[[nodiscard]] std::vector<char32_t> decode_utf8(std::string_view text,
                                                std::string_view source = "text");

/// Appends the UTF-8 form of a code point. Throws Error for a surrogate or a value above U+10FFFF.
void append_utf8(std::string& text, char32_t code_point);

/// A character as error messages show it: 'x' (U+0078); controls by their number alone.
[[nodiscard]] std::string describe_character(char32_t code_point);

}  // namespace steady
