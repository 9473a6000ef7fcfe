#include <steadygrad/core/data/vocabulary.hpp>

#include <algorithm>
#include <functional>
#include <steadygrad/core/data/utf8.hpp>
#include <steadygrad/core/error.hpp>
#include <utility>

namespace steady {

Vocabulary Vocabulary::bytes() { return {TextUnit::Byte, {}}; }

Vocabulary Vocabulary::characters_of(std::string_view text) {
  std::vector<char32_t> points = decode_utf8(text);
  std::ranges::sort(points);
  points.erase(std::unique(points.begin(), points.end()), points.end());
  points.shrink_to_fit();
  return {TextUnit::Character, std::move(points)};
}

Vocabulary Vocabulary::from_characters(std::vector<char32_t> characters) {
  const auto fault = std::ranges::adjacent_find(characters, std::ranges::greater_equal{});
  STEADY_CHECK(Error, fault == characters.end(),
               "vocabulary: the characters must rise; got {} before {}", describe_character(*fault),
               describe_character(*(fault + 1)));
  return {TextUnit::Character, std::move(characters)};
}

std::vector<std::int64_t> Vocabulary::encode(std::string_view text) const {
  std::vector<std::int64_t> ids;
  if (unit_ == TextUnit::Byte) {
    ids.reserve(text.size());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  const std::vector<char32_t> points = decode_utf8(text);
  ids.reserve(points.size());
  for (const char32_t c : points) {
    const auto at = std::ranges::lower_bound(characters_, c);
    STEADY_CHECK(Error, at != characters_.end() && *at == c,
                 "vocabulary: character {} at position {} is not among the {} known ones",
                 describe_character(c), ids.size(), characters_.size());
    ids.push_back(at - characters_.begin());
  }
  return ids;
}

std::string Vocabulary::decode(std::span<const std::int64_t> ids) const {
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    STEADY_CHECK(Error, ids[i] >= 0 && ids[i] < size(),
                 "vocabulary: id at position {} must be in [0, {}); got {}", i, size(), ids[i]);
    if (unit_ == TextUnit::Byte) {
      text.push_back(static_cast<char>(ids[i]));
    } else {
      append_utf8(text, characters_[static_cast<std::size_t>(ids[i])]);
    }
  }
  return text;
}

}  // namespace steady
