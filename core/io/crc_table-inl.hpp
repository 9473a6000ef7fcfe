#pragma once

#include <array>
#include <cstddef>

namespace steady::detail {

/// What each byte does to the remainder of a CRC of T's width with a reflected polynomial.
template <class T>
constexpr std::array<T, 256> crc_table(T polynomial) {
  std::array<T, 256> table{};
  for (std::size_t b = 0; b < 256; ++b) {
    T rest = static_cast<T>(b);
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? polynomial : T(0));
    table[b] = rest;
  }
  return table;
}

}  // namespace steady::detail
