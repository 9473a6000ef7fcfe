#pragma once

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <string>

namespace steady {

/// A pair (vertical, horizontal) in pixels, written `3` for a square one or `{3, 5}`.
struct Extent2 {
  std::int64_t vertical;
  std::int64_t horizontal;

  constexpr Extent2(std::int64_t both) : vertical(both), horizontal(both) {}
  constexpr Extent2(std::int64_t v, std::int64_t h) : vertical(v), horizontal(h) {}
  [[nodiscard]] constexpr std::array<std::int64_t, 2> array() const {
    return {vertical, horizontal};
  }
  friend constexpr bool operator==(const Extent2&, const Extent2&) = default;
};

/// Whether both are at least `least`.
[[nodiscard]] constexpr bool at_least(const Extent2& e, std::int64_t least) {
  return e.vertical >= least && e.horizontal >= least;
}

/// "3x5".
[[nodiscard]] inline std::string to_string(const Extent2& e) {
  return fmt::format("{}x{}", e.vertical, e.horizontal);
}

}  // namespace steady
