#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/event_file.hpp>
#include <string>
#include <vector>

namespace steady {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::uint32_t crc_of(const std::string& text) { return crc32c({text.data(), text.size()}); }

// RFC 3720, B.4: the sums of iSCSI's examples.
TEST(Crc32c, GivesThePublishedSums) {
  EXPECT_EQ(crc_of("123456789"), 0xE3069283U);
  EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc_of(std::string(32, '\xFF')), 0x62A8AB43U);
  EXPECT_EQ(crc_of(""), 0U);
}

class EventFileTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_event_files()) GTEST_SKIP() << "built without protobuf";
    directory_ = std::filesystem::temp_directory_path() /
                 ("event_file_" + std::to_string(getpid()) + "_" +
                  testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static EventFileOptions fixed_time() {
    return {.wall_time = [] { return 1234567890.5; }};
  }

  /// The messages of a file; every length and sum is checked.
  static std::vector<std::string> messages(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(file), {}};
    const auto word = [&](std::size_t at) {
      std::uint32_t value = 0;
      std::memcpy(&value, all.data() + at, 4);
      return value;
    };
    const auto masked = [](std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U; };
    std::vector<std::string> result;
    for (std::size_t at = 0; at < all.size();) {
      std::uint64_t length = 0;
      std::memcpy(&length, all.data() + at, 8);
      EXPECT_EQ(word(at + 8), masked(crc_of(all.substr(at, 8))));
      if (at + 16 + length > all.size()) {
        ADD_FAILURE() << "a record is cut off";
        break;
      }
      result.push_back(all.substr(at + 12, length));
      EXPECT_EQ(word(at + 12 + length), masked(crc_of(result.back())));
      at += 16 + length;
    }
    return result;
  }

  /// What protoc says of a message, by the field numbers alone.
  std::string decoded(const std::string& message) const {
    const std::filesystem::path raw = directory_ / "message";
    std::ofstream(raw, std::ios::binary) << message;
    std::FILE* pipe = popen(("protoc --decode_raw < '" + raw.string() + "'").c_str(), "r");
    std::string text;
    std::array<char, 256> part{};
    while (std::fgets(part.data(), part.size(), pipe) != nullptr) text += part.data();
    EXPECT_EQ(pclose(pipe), 0);
    return text;
  }

  std::filesystem::path directory_;
};

TEST_F(EventFileTest, WritesScalarsThatProtocDecodes) {
  EventFile file(directory_ / "runs", fixed_time());
  EXPECT_THAT(file.path().filename().string(), HasSubstr("tfevents.1234567890"));
  file.scalar("train/loss", 7, 0.25);
  file.scalar("train/loss", 8, std::numeric_limits<double>::quiet_NaN());
  file.close();
  const std::vector<std::string> all = messages(file.path());
  ASSERT_EQ(all.size(), 3U);
  EXPECT_THAT(decoded(all[0]), HasSubstr("3: \"brain.Event:2\""));
  EXPECT_THAT(decoded(all[1]), AllOf(HasSubstr("1: 0x41d26580b4a00000"), HasSubstr("2: 7"),
                                     HasSubstr("1: \"train/loss\""), HasSubstr("2: 0x3e800000")));
  EXPECT_THAT(decoded(all[2]), HasSubstr("2: 0x7fc00000"));
}

TEST_F(EventFileTest, WritesHistograms) {
  EventFile file(directory_, fixed_time());
  const std::array<double, 3> edges{-1, 0, 2};
  const std::array<std::int64_t, 3> counts{1, 0, 5};
  file.histogram(
      "w", 3,
      {.min = -1.5, .max = 2, .sum = 4, .sum_squares = 9, .edges = edges, .counts = counts});
  file.close();
  const std::vector<std::string> all = messages(file.path());
  ASSERT_EQ(all.size(), 2U);
  EXPECT_THAT(decoded(all[1]), AllOf(HasSubstr("1: \"w\""), HasSubstr("1: 0xbff8000000000000"),
                                     HasSubstr("3: 0x4018000000000000")));
  EXPECT_THROW(file.histogram("w", 4, {.edges = edges, .counts = counts}), Error);
}

TEST_F(EventFileTest, TwoFilesOfOneSecondAreTwoFiles) {
  EventFile a(directory_, fixed_time()), b(directory_, fixed_time());
  EXPECT_NE(a.path(), b.path());
}

TEST_F(EventFileTest, RefusesAHistogramWithoutEdgesAndALockedDirectory) {
  EventFile file(directory_, fixed_time());
  const std::array<std::int64_t, 1> counts{1};
  EXPECT_THROW(file.histogram("w", 0, {.counts = counts}), Error);
  EXPECT_THROW(EventFile("/proc/no such place"), IoError);
}

TEST_F(EventFileTest, AFullDiskIsAnErrorAndTheFileEndsAtAWholeRecord) {
  EventFile file(directory_, {.flush_seconds = 1e9, .wall_time = [] { return 1.0; }});
  file.scalar("a", 0, 1);
  file.flush();
  const auto whole = std::filesystem::file_size(file.path());
  const rlimit small{whole + 10, RLIM_INFINITY};
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  file.scalar("a", 1, 2);
  EXPECT_THROW(file.flush(), IoError);
  EXPECT_EQ(std::filesystem::file_size(file.path()), whole);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  file.flush();
  file.close();
  EXPECT_EQ(messages(file.path()).size(), 3U);
}

}  // namespace
}  // namespace steady
