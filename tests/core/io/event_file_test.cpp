#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/event_file.hpp>
#include <string>
#include <vector>

#include "tests/support/event_messages.hpp"

namespace steady {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::decoded_event;
using testing_support::event_messages;

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

  static std::ptrdiff_t count(const std::string& text, const std::string& part) {
    std::ptrdiff_t n = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
    return n;
  }

  std::filesystem::path directory_;
};

TEST_F(EventFileTest, WritesScalarsThatProtocDecodes) {
  EventFile file(directory_ / "runs", fixed_time());
  EXPECT_THAT(file.path().filename().string(), HasSubstr("tfevents.1234567890"));
  file.scalar("train/loss", 7, 0.25);
  file.scalar("train/loss", 8, std::numeric_limits<double>::quiet_NaN());
  file.close();
  const std::vector<std::string> all = event_messages(file.path());
  ASSERT_EQ(all.size(), 3U);
  EXPECT_THAT(decoded_event(all[0]), HasSubstr("file_version: \"brain.Event:2\""));
  EXPECT_THAT(decoded_event(all[1]),
              AllOf(HasSubstr("wall_time: 1234567890.5"), HasSubstr("step: 7"),
                    HasSubstr("tag: \"train/loss\""), HasSubstr("simple_value: 0.25")));
  EXPECT_THAT(decoded_event(all[2]), HasSubstr("simple_value: nan"));
}

TEST_F(EventFileTest, WritesHistograms) {
  EventFile file(directory_, fixed_time());
  const std::array<double, 3> edges{-1, 0, 2};
  const std::array<std::int64_t, 3> counts{1, 0, 5};
  file.histogram(
      "w", 3,
      {.min = -1.5, .max = 2, .sum = 4, .sum_squares = 9, .edges = edges, .counts = counts});
  file.close();
  const std::vector<std::string> all = event_messages(file.path());
  ASSERT_EQ(all.size(), 2U);
  EXPECT_THAT(decoded_event(all[1]),
              AllOf(HasSubstr("tag: \"w\""), HasSubstr("min: -1.5"), HasSubstr("num: 6"),
                    HasSubstr("bucket_limit: 0\n"), HasSubstr("bucket: 5\n")));
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

TEST_F(EventFileTest, CountsTheFiniteElementsOfATensorInEqualBins) {
  constexpr double Infinity = std::numeric_limits<double>::infinity();
  EventFile file(directory_, fixed_time());
  // From -1 to 2 the 30 edges lie 0.1 apart; an edge belongs to the bin on its left.
  file.histogram(
      "w", 3, Tensor::of({7}, {-1, -0.95, 2, 0.5, Infinity, -Infinity, std::nan("")}, Dtype::F64));
  file.histogram("same", 3, Tensor::of({2}, {4, 4}));
  file.histogram("none", 3, Tensor::of({1}, {Infinity}));
  file.close();
  const std::vector<std::string> all = event_messages(file.path());
  ASSERT_EQ(all.size(), 4U);
  const std::string w = decoded_event(all[1]);
  EXPECT_THAT(w, AllOf(HasSubstr("min: -1\n"), HasSubstr("max: 2\n"), HasSubstr("num: 4\n")));
  EXPECT_EQ(count(w, "bucket_limit:"), 30);
  EXPECT_EQ(count(w, "bucket: 2\n"), 1);  // -1 and -0.95
  EXPECT_EQ(count(w, "bucket: 1\n"), 2);
  EXPECT_EQ(count(w, "bucket: 0\n"), 27);
  EXPECT_THAT(decoded_event(all[2]),
              AllOf(HasSubstr("bucket_limit: 4\n"), HasSubstr("bucket: 2\n")));
  EXPECT_THAT(decoded_event(all[3]),
              AllOf(HasSubstr("bucket_limit: 0\n"), HasSubstr("bucket: 0\n")));
}

TEST_F(EventFileTest, AFullDiskIsAnErrorAndTheFileEndsAtAWholeRecord) {
  EventFile file(directory_, {.flush_seconds = 1e9, .wall_time = [] { return 1.0; }});
  file.scalar("a", 0, 1);
  file.flush();
  const auto whole = std::filesystem::file_size(file.path());
  const rlimit small{whole + 10, RLIM_INFINITY};
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  setrlimit(RLIMIT_FSIZE, &small);
  file.scalar("a", 1, 2);
  EXPECT_THROW(file.flush(), IoError);
  EXPECT_EQ(std::filesystem::file_size(file.path()), whole);
  setrlimit(RLIMIT_FSIZE, &before);
  file.flush();
  file.close();
  EXPECT_EQ(event_messages(file.path()).size(), 3U);
}

}  // namespace
}  // namespace steady
