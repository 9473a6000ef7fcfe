#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/core/data/files.hpp"

namespace steady::test {

/// A file with this header and these data. `length` replaces the header's true length.
inline Bytes safetensors_bytes(std::string_view header, const Bytes& data) {
  Bytes bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::byte>(header.size() >> 8 * i));
  for (const char c : header) bytes.push_back(static_cast<std::byte>(c));
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

/// `count` data bytes: 0, 1, 2 ...
inline Bytes counting(std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

/// {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}} and counting data.
inline Bytes one_tensor(std::string_view dtype, std::string_view shape, std::string_view offsets,
                        std::size_t data) {
  return safetensors_bytes(R"({"a":{"dtype":)" + std::string(dtype) + R"(,"shape":)" +
                               std::string(shape) + R"(,"data_offsets":)" + std::string(offsets) +
                               "}}",
                           counting(data));
}

}  // namespace steady::test
