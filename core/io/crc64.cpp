#include <steadygrad/core/io/crc64.hpp>

#include <array>
#include <steadygrad/core/io/crc_table-inl.hpp>

namespace steady {
namespace {

using Table = std::array<std::array<std::uint64_t, 256>, 8>;

/// table[k][b]: what byte b does to the remainder when k more bytes follow it.
constexpr Table make_table() {
  Table table{detail::crc_table<std::uint64_t>(0xC96C5795D7870F42)};
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      table[k][b] = (table[k - 1][b] >> 8) ^ table[0][table[k - 1][b] & 0xFF];
    }
  }
  return table;
}

constexpr Table Rest = make_table();

}  // namespace

std::uint64_t crc64(std::span<const std::byte> bytes, std::uint64_t before) {
  std::uint64_t rest = ~before;
  const auto byte = [&](std::size_t i) { return static_cast<std::uint64_t>(bytes[i]); };
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {  // eight bytes by eight tables that do not wait
    std::uint64_t sum = 0;
    for (std::size_t k = 0; k < 8; ++k) {
      sum ^= Rest[7 - k][((rest >> (8 * k)) & 0xFF) ^ byte(i + k)];
    }
    rest = sum;
  }
  for (; i < bytes.size(); ++i) rest = (rest >> 8) ^ Rest[0][(rest & 0xFF) ^ byte(i)];
  return ~rest;
}

}  // namespace steady
