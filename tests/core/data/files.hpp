#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace steady::test {

using Bytes = std::vector<std::byte>;

/// A directory of this test's own, removed with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string("steady_") + info->test_suite_name() + "_" + info->name();
    for (char& c : name) c = c == '/' ? '_' : c;
    path_ = std::filesystem::path(testing::TempDir()) / name;
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  std::filesystem::path write(const std::string& name, const Bytes& bytes) const {
    const auto file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    return file;
  }

 private:
  std::filesystem::path path_;
};

inline Bytes from_hex(std::string_view text) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

/// 00 00 type rank, sizes, then `payload` bytes counting 0, 1, 2 ... modulo `modulus`.
inline Bytes idx(int type, std::initializer_list<std::uint32_t> dims, std::size_t payload,
                 int modulus = 256) {
  Bytes bytes{std::byte{0}, std::byte{0}, static_cast<std::byte>(type),
              static_cast<std::byte>(dims.size())};
  for (const std::uint32_t dim : dims) {
    for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<std::byte>(dim >> shift));
  }
  for (std::size_t i = 0; i < payload; ++i) {
    bytes.push_back(static_cast<std::byte>(i % static_cast<std::size_t>(modulus)));
  }
  return bytes;
}

inline Bytes gzip(const Bytes& plain) {
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  Bytes packed(deflateBound(&z, static_cast<uLong>(plain.size())) + 64);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(plain.data()));
  z.avail_in = static_cast<uInt>(plain.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  packed.erase(packed.end() - static_cast<std::ptrdiff_t>(z.avail_out), packed.end());
  deflateEnd(&z);
  return packed;
}

/// Runs `action` and returns the text of the E it must throw.
template <class E, class F>
std::string message_of(F&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace steady::test
