#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace steady {

/// CRC-64/XZ: reflected polynomial 0xC96C5795D7870F42, all ones before and inverted after; that of
/// "123456789" is 0x995DC9BBDF1939FA. Finds every change of up to 64 bits in a row.  [ECMA-182]
/// `before`: the checksum of the bytes in front, to go on from.
[[nodiscard]] std::uint64_t crc64(std::span<const std::byte> bytes, std::uint64_t before = 0);

}  // namespace steady
