#include "tests/support/event_messages.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <steadygrad/core/io/event_file.hpp>

namespace steady::testing_support {

std::vector<std::string> event_messages(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  const auto word = [&](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, all.data() + at, 4);
    return value;
  };
  const auto masked_sum = [](const std::string& text) {
    const std::uint32_t crc = crc32c({text.data(), text.size()});
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
  };
  std::vector<std::string> result;
  for (std::size_t at = 0; at < all.size();) {
    std::uint64_t length = 0;
    if (at + 16 <= all.size()) std::memcpy(&length, all.data() + at, 8);
    if (at + 16 > all.size() || length > all.size() - at - 16) {
      ADD_FAILURE() << path << ": a record is cut off";
      break;
    }
    EXPECT_EQ(word(at + 8), masked_sum(all.substr(at, 8)));
    result.push_back(all.substr(at + 12, length));
    EXPECT_EQ(word(at + 12 + length), masked_sum(result.back()));
    at += 16 + length;
  }
  return result;
}

std::string decoded_event(const std::string& message) {
  const std::filesystem::path raw =
      std::filesystem::temp_directory_path() / ("steady_event_" + std::to_string(getpid()));
  std::ofstream(raw, std::ios::binary) << message;
  const std::string command = "protoc --decode=steady.event_format.Event -I" STEADY_SOURCE_DIR
                              "/core/io event_file.proto <'" +
                              raw.string() + "' 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  std::array<char, 256> part{};
  while (std::fgets(part.data(), part.size(), pipe) != nullptr) text += part.data();
  EXPECT_EQ(pclose(pipe), 0) << text;
  std::filesystem::remove(raw);
  return text;
}

std::string decoded_events(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  EXPECT_EQ(files.size(), 1U) << directory;
  std::string text;
  for (const std::filesystem::path& file : files) {
    for (const std::string& message : event_messages(file)) text += decoded_event(message);
  }
  return text;
}

}  // namespace steady::testing_support
