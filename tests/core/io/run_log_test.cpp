#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <limits>
#include <numeric>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/run_log.hpp>
#include <steadygrad/core/io/run_record.hpp>
#include <steadygrad/core/random.hpp>
#include <string>

#include "tests/core/data/files.hpp"
#include "tests/support/message_of.hpp"

namespace steady {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::message_of;

constexpr RunLogOptions ByHand{.flush_seconds = -1};

test::Bytes bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  test::Bytes bytes(text.size());
  std::transform(text.begin(), text.end(), bytes.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

/// A log with two series and a histogram.
void write_log(const std::filesystem::path& path, std::int64_t rows) {
  RunLog log(path, {{"norm", "batch"}, {"lr", 0.05}, {"seed", std::uint64_t{7}}}, ByHand);
  for (std::int64_t step = 0; step < rows; ++step) {
    log.append({"series", "train"}, step, {{"loss", 1.0 / double(step + 1)}, {"lr", 0.05}});
    const std::vector<std::int64_t> histogram = {step, 2, 3 * step};
    log.append({"layers", "layers.0/norm1", "output"}, 10 * step, {{"rms", double(step)}},
               histogram);
  }
  log.set("final_loss", 0.25);
  log.close();
}

TEST(RunLog, ComesBackAsItWasWritten) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "run.h5";
  write_log(path, 200);
  const RunRecord record = read_run(path);
  EXPECT_TRUE(record.complete);
  EXPECT_EQ(record.options,
            (hdf5::Attributes{{"norm", "batch"}, {"lr", 0.05}, {"seed", std::uint64_t{7}}}));
  EXPECT_EQ(record.results, (hdf5::Attributes{{"final_loss", 0.25}}));
  for (const char* fact : {"steadygrad", "libraries", "simd", "threads", "hdf5"}) {
    ASSERT_NE(find(record.facts, fact), nullptr) << fact;
    EXPECT_FALSE(hdf5::to_string(*find(record.facts, fact)).empty()) << fact;
  }
  ASSERT_EQ(record.series.size(), 2U);
  const RunSeries* train = record.find({"series", "train"});
  ASSERT_NE(train, nullptr);
  EXPECT_THAT(train->names, ElementsAre("loss", "lr"));
  ASSERT_EQ(train->step.size(), 200U);
  EXPECT_EQ(train->step[199], 199);
  EXPECT_EQ(train->column("loss")[3], 0.25);
  EXPECT_EQ(train->bins, 0);
  const RunSeries* output = record.find({"layers", "layers.0/norm1", "output"});
  ASSERT_NE(output, nullptr);
  EXPECT_EQ(output->step[5], 50);
  EXPECT_EQ(output->column("rms")[5], 5);
  EXPECT_THAT(output->histogram_of(5), ElementsAre(5, 2, 15));
  EXPECT_EQ(record.find({"series", "test"}), nullptr);
  EXPECT_THAT(message_of([&] { (void)train->column("accuracy"); }),
              HasSubstr("'series/train' has no column 'accuracy'; it has loss, lr"));
}

TEST(RunLog, NumbersKeepTheirBits) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "run.h5";
  const std::vector<double> odd = {std::numeric_limits<double>::quiet_NaN(),
                                   std::numeric_limits<double>::infinity(), -0.0, 5e-324, 0.1};
  {
    RunLog log(path, {}, ByHand);
    for (const double v : odd) log.append({"series", "x"}, -1, {{"v", v}});
  }
  const std::vector<double> read = read_run(path).find({"series", "x"})->column("v");
  ASSERT_EQ(read.size(), odd.size());
  for (std::size_t i = 0; i < odd.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(read[i]), std::bit_cast<std::uint64_t>(odd[i]));
  }
}

TEST(RunLog, ReadsOnlyTheSeriesThatAreWanted) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / "steady_run_log_wanted.h5";
  {
    RunLog log(path, {{"lr", 0.5}});
    log.append({"a", "x"}, 0, {{"v", 1.0}});
    log.append({"a", "y"}, 0, {{"v", 2.0}});
    log.close();
  }
  const RunRecord record = read_run(path, [](const SeriesPath& p) { return p.back() == "y"; });
  ASSERT_EQ(record.series.size(), 1U);
  EXPECT_EQ(record.series[0].column("v"), std::vector<double>{2.0});
  EXPECT_EQ(record.options.size(), 1U);
  std::filesystem::remove(path);
}

TEST(RunLog, EqualRunsGiveEqualFiles) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "run.h5";
  write_log(path, 50);
  const test::Bytes first = bytes_of(path);
  write_log(path, 50);
  EXPECT_EQ(first, bytes_of(path));
}

TEST(RunLog, TheFileIsTheLogAtTheLastFlush) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "run.h5";
  RunLog log(path, {{"lr", 0.5}}, ByHand);
  EXPECT_EQ(read_run(path).options, (hdf5::Attributes{{"lr", 0.5}}));
  log.append({"series", "x"}, 0, {{"v", 1.0}});
  EXPECT_EQ(read_run(path).find({"series", "x"}), nullptr);
  log.flush();
  log.append({"series", "x"}, 1, {{"v", 2.0}});
  log.set("state", "running");
  EXPECT_THAT(read_run(path).find({"series", "x"})->column("v"), ElementsAre(1.0));
  log.flush();
  const RunRecord record = read_run(path);
  EXPECT_THAT(record.find({"series", "x"})->column("v"), ElementsAre(1.0, 2.0));
  EXPECT_EQ(hdf5::to_string(record.results.at(0).second), "running");
  EXPECT_FALSE(record.complete);
}

TEST(RunLog, FlushesByItself) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "run.h5";
  RunLog log(path, {}, {.flush_seconds = 0});
  std::size_t rows = 0;
  for (std::int64_t step = 0; rows == 0;
       ++step) {  // a flush comes once fifty times its own time passed
    log.append({"series", "x"}, step, {{"v", 1.0}});
    if (step % 1000 != 0) continue;
    const RunSeries* series = nullptr;
    const RunRecord record = read_run(path);
    series = record.find({"series", "x"});
    rows = series == nullptr ? 0 : series->step.size();
  }
  EXPECT_GE(rows, 1U);
}

TEST(RunLog, RefusesRowsThatDoNotFit) {
  const test::TemporaryDirectory directory;
  RunLog log(directory.path() / "run.h5", {}, ByHand);
  log.append({"series", "x"}, 0, {{"v", 1.0}});
  const std::vector<std::int64_t> histogram = {1};
  EXPECT_THAT(message_of([&] {
                log.append({"series", "x"}, 1, {{"w", 1.0}});
              }),
              HasSubstr("a row of series '/series/x' has other names"));
  EXPECT_NE(message_of([&] {
              log.append({"series", "x"}, 1, {{"v", 1.0}}, histogram);
            }),
            "no exception");
  EXPECT_NE(message_of([&] {
              log.append({"series", "x"}, 1, {{"v", 1.0}, {"w", 1.0}});
            }),
            "no exception");
  for (const char* name : {"step", "histogram", ""}) {
    EXPECT_THAT(message_of([&] {
                  log.append({"series", "y"}, 0, {{name, 1.0}});
                }),
                HasSubstr("is empty, reserved or given twice"))
        << name;
  }
  EXPECT_NE(message_of([&] {
              log.append({"series", "y"}, 0, {{"a", 1.0}, {"a", 1.0}});
            }),
            "no exception");
  EXPECT_THAT(message_of([&] {
                log.append({"series"}, 0, {{"v", 1.0}});
              }),
              HasSubstr("needs a group and a name"));
  EXPECT_THAT(message_of([&] {
                log.append({"series", "x", "z"}, 0, {{"v", 1.0}});
              }),
              HasSubstr("cannot lie in the way of the series '/series/x'"));
  log.close();
  EXPECT_THAT(message_of([&] {
                log.append({"series", "x"}, 1, {{"v", 1.0}});
              }),
              HasSubstr("is closed"));
  EXPECT_THAT(message_of([&] { log.set("a", 1.0); }), HasSubstr("is closed"));
}

TEST(RunLog, RefusesAnOptionGivenTwiceAndAPlaceItCannotWrite) {
  const test::TemporaryDirectory directory;
  EXPECT_THAT(message_of([&] {
                const RunLog log(directory.path() / "run.h5", {{"lr", 1.0}, {"lr", 2.0}});
              }),
              HasSubstr("the option 'lr' is given twice"));
  EXPECT_THROW(const RunLog log(directory.path() / "none" / "run.h5"), IoError);
}

TEST(RunRecord, AFileThatIsMissingOrSomethingElseIsOneIoError) {
  const test::TemporaryDirectory directory;
  const auto expect_refused = [](const std::filesystem::path& path) {
    try {
      (void)read_run(path);
      ADD_FAILURE() << path << " was read";
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
    }
  };
  expect_refused(directory.path() / "none.h5");
  expect_refused(directory.path());
  expect_refused(directory.write("empty.h5", {}));
  expect_refused(directory.write("text.h5", test::Bytes(5000, std::byte{65})));
  const auto other = directory.path() / "other.h5";
  {
    const hdf5::File file = hdf5::File::create_in_memory(other.string());
    (void)file.root().create_table("t", {{.name = "x"}});
    directory.write("other.h5", file.image());
  }
  expect_refused(other);
}

TEST(RunRecord, ADamagedFileIsAnIoErrorOrNoDamageToTheNumbers) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "run.h5";
  write_log(path, 100);
  const test::Bytes whole = bytes_of(path);
  // Cut anywhere: the file knows its own length.
  for (std::size_t i = 1; i < 8; ++i) {
    const test::Bytes part(whole.begin(),
                           whole.begin() + static_cast<std::ptrdiff_t>(whole.size() * i / 8));
    EXPECT_THROW((void)read_run(directory.write("cut.h5", part)), IoError) << i;
  }
  // A spoilt block of records: the checksum of its chunk.
  const RunRecord before = read_run(path);
  int refused = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    test::Bytes spoilt = whole;
    const std::size_t at = 2048 + i * ((whole.size() - 2048) / 40);
    for (std::size_t k = at; k < at + 16; ++k) spoilt[k] ^= std::byte{0x5A};
    try {
      const RunRecord record = read_run(directory.write("spoilt.h5", spoilt));
      EXPECT_EQ(record.series.size(), before.series.size()) << "at " << at;
    } catch (const IoError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

/// Writes and flushes without an end. Row i of both series holds i; a note tells the parent how
/// many rows the last flush held.
[[noreturn]] void write_forever(const std::filesystem::path& path, int note) {
  RunLog log(path, {{"seed", std::uint64_t{1}}}, ByHand);
  for (std::int64_t i = 0;; ++i) {
    log.append({"series", "a"}, i, {{"v", double(i)}});
    log.append({"layers", "norm1", "output"}, i, {{"v", double(i)}},
               std::vector<std::int64_t>(96, i));
    if (i % 5 != 4) continue;
    log.flush();
    const std::int64_t rows = i + 1;
    if (write(note, &rows, sizeof rows) != sizeof rows) _exit(1);
  }
}

TEST(RunLog, ARunKilledAtAnyMomentLeavesItsLastFlush) {
  const test::TemporaryDirectory directory;
  Random random(11, "moments");
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    const auto path = directory.path() / ("run" + std::to_string(round) + ".h5");
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(pipe_ends[0]);
      write_forever(path, pipe_ends[1]);
    }
    close(pipe_ends[1]);
    // After some flushes, and then somewhere in the work on the next ones.
    std::int64_t flushed = 0;
    const auto flushes = 1 + static_cast<int>(random.uniform() * 12);
    for (int i = 0; i < flushes; ++i) {
      ASSERT_EQ(read(pipe_ends[0], &flushed, sizeof flushed), ssize_t(sizeof flushed));
    }
    volatile double busy = 0;
    const auto turns = static_cast<std::int64_t>(random.uniform() * 3e6);
    for (std::int64_t i = 0; i < turns; ++i) busy = busy + 1;
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    for (std::int64_t more = 0; read(pipe_ends[0], &more, sizeof more) == ssize_t(sizeof more);) {
      flushed = more;
    }
    close(pipe_ends[0]);

    const RunRecord record = read_run(path);
    EXPECT_FALSE(record.complete);
    EXPECT_EQ(hdf5::to_string(record.options.at(0).second), "1");
    const RunSeries* a = record.find({"series", "a"});
    const RunSeries* output = record.find({"layers", "norm1", "output"});
    ASSERT_TRUE(a != nullptr && output != nullptr);
    const std::size_t rows = a->step.size();
    // The kill may fall between a flush and its note.
    EXPECT_TRUE(rows == std::size_t(flushed) || rows == std::size_t(flushed) + 5)
        << rows << " " << flushed;
    ASSERT_EQ(output->step.size(), rows);
    std::vector<std::int64_t> steps(rows);
    std::iota(steps.begin(), steps.end(), 0);
    EXPECT_EQ(a->step, steps);
    EXPECT_EQ(output->step, steps);
    EXPECT_THAT(output->histogram_of(rows - 1), testing::Each(std::int64_t(rows) - 1));
  }
}

}  // namespace
}  // namespace steady
