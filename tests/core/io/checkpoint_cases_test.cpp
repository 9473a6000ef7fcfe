// Checkpoints against faults that people reported, by their CASES numbers.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/file.h>

#include <numeric>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/checkpoint_store.hpp>
#include <steadygrad/core/random.hpp>
#include <thread>

#include "tests/core/io/checkpoint_testing.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/sanitizer.hpp"

namespace steady {
namespace {

using test::bytes_of_file;
using test::checkpoint_of;
using test::limit;
using test::repetitions;
using test::status_of_child;
using test::step_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::message_of;
namespace fs = std::filesystem;

struct CheckpointCases : testing::Test {
  test::TemporaryDirectory directory;
  fs::path path = directory.path() / "state.h5";

  std::vector<std::string> names_there() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory.path())) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
};

/// Saves without an end, each step into a file of its own and into one that is replaced. A byte to
/// the parent after each step.
[[noreturn]] void save_forever(const CheckpointStore& one, const CheckpointStore& many, int note) {
  for (std::int64_t step = 1;; ++step) {
    const Checkpoint checkpoint = checkpoint_of(step, 20'000);
    one.save(step, checkpoint);
    many.save(step, checkpoint);
    if (write(note, "", 1) != 1) _exit(1);
  }
}

TEST_F(CheckpointCases, KilledWhileSavingItLeavesAWholeCheckpoint) {  // H5-01, H5-02
  Random random(5, "moments");
  const CheckpointStore one(path);
  const CheckpointStore many(directory.path() / "many", {.keep = 2});
  int parts = 0;
  const int rounds = repetitions("STEADY_KILLS", 20);
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    fs::remove_all(many.path());
    int note[2];
    ASSERT_EQ(pipe(note), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_forever(one, many, note[1]);
    close(note[1]);
    // After a step or more, and then somewhere in the work on the next ones.
    char byte = 0;
    const std::int64_t steps = 1 + random.below(3);
    for (std::int64_t i = 0; i < steps; ++i) ASSERT_EQ(read(note[0], &byte, 1), 1);
    volatile double busy = 0;
    const auto turns = static_cast<std::int64_t>(random.uniform() * 4e6);
    for (std::int64_t i = 0; i < turns; ++i) busy = busy + 1;
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    close(note[0]);
    EXPECT_GE(step_of(load_checkpoint(path)), steps);
    const LatestCheckpoint latest = many.latest();
    EXPECT_GE(step_of(latest.checkpoint), steps);
    EXPECT_THAT(latest.skipped, IsEmpty());
    for (const fs::path& file : many.files()) (void)step_of(load_checkpoint(file));
    parts += fs::exists(path.string() + ".part") ? 1 : 0;
  }
  EXPECT_TRUE(parts > 0 || rounds < 20) << "no kill fell into the writing of the file";
}

TEST_F(CheckpointCases, ATruncatedFileIsNamedAsSuch) {  // H5-04
  save_checkpoint(path, checkpoint_of(1));
  const auto size = fs::file_size(path);
  testing::internal::CaptureStderr();
  for (const std::uintmax_t length : {std::uintmax_t{0}, std::uintmax_t{23}, std::uintmax_t{96},
                                      std::uintmax_t{2048}, size - 1}) {
    fs::copy_file(path, directory.path() / "cut.h5", fs::copy_options::overwrite_existing);
    fs::resize_file(directory.path() / "cut.h5", length);
    const std::string text =
        message_of([&] { (void)load_checkpoint(directory.path() / "cut.h5"); });
    EXPECT_THAT(text, HasSubstr(fmt::format("cut.h5' is truncated: has {} bytes, expects {}",
                                            length, length < 96 ? "more" : std::to_string(size))));
  }
  directory.write("text.h5", test::Bytes(3000, std::byte{'a'}));
  EXPECT_THAT(message_of([&] { (void)load_checkpoint(directory.path() / "text.h5"); }),
              HasSubstr("is no checkpoint"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(CheckpointCases, LocksOfOtherProcessesDoNotMatter) {  // H5-05
  save_checkpoint(path, checkpoint_of(1));
  const int fd = open(path.c_str(), O_RDWR);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);  // as HDF5 itself holds a file that it writes
  EXPECT_EQ(status_of_child([&] {
              (void)hdf5::File::open(path).root().group("model");
              return static_cast<int>(step_of(load_checkpoint(path)));
            }),
            1 << 8);
  close(fd);
}

TEST_F(CheckpointCases, ListsOfNamesMayBeLong) {  // H5-06
  Checkpoint checkpoint{{{"model", {}}, {"optimizer", {}}, {"options", {}}}};
  const Tensor value = Tensor::scalar(0.5);
  for (int i = 0; i < 2500; ++i) {
    const std::string name = fmt::format("a.path.of.just.about.forty.characters.{:04}", i);
    checkpoint.parts[0].part.tensors.push_back({name, value});
    checkpoint.parts[0].part.values.emplace_back(name + ".mode", std::string("train"));
    checkpoint.parts[1].part.tensors.push_back({name + ".exp_avg", value});
  }
  checkpoint.parts[2].part.values.emplace_back("plan", std::string(100'000, 'x'));
  save_checkpoint(path, checkpoint);
  const Checkpoint loaded = load_checkpoint(path);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& [name, part] = checkpoint.parts[i];
    EXPECT_EQ(loaded.find(name)->tensors.size(), part.tensors.size());
    EXPECT_EQ(loaded.find(name)->values, part.values);
  }
}

TEST_F(CheckpointCases, EveryNameComesBack) {  // H5-07
  const std::vector<std::string> names = {
      "a", "a/b", "a.b", ".", "..", "", "a//b", "é", std::string(1000, 'n'), "%2F", "/", "%"};
  Checkpoint checkpoint;
  for (const std::string& part : names) {
    checkpoint.parts.push_back({part, {}});
    CheckpointPart& content = checkpoint.parts.back().part;
    for (std::size_t i = 0; i < names.size(); ++i) {
      content.tensors.push_back({names[i], Tensor::scalar(static_cast<double>(i))});
      content.values.emplace_back(names[i], static_cast<std::int64_t>(i));
    }
  }
  save_checkpoint(path, checkpoint);
  const Checkpoint loaded = load_checkpoint(path);
  ASSERT_EQ(loaded.parts.size(), names.size());
  for (const std::string& part : names) {
    ASSERT_NE(loaded.find(part), nullptr) << part;
    EXPECT_EQ(loaded.find(part)->values, checkpoint.parts[0].part.values);
    for (std::size_t i = 0; i < names.size(); ++i) {
      EXPECT_EQ(find(loaded.find(part)->tensors, names[i]).item(), static_cast<double>(i));
    }
  }
}

TEST_F(CheckpointCases, ThreadsSaveAndLoadAtTheSameTime) {  // H5-08
  save_checkpoint(path, checkpoint_of(9));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const CheckpointStore store(directory.path() / std::to_string(t), {.keep = 1});
      for (std::int64_t step = 0; step < 5; ++step) store.save(step, checkpoint_of(10 * step + t));
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; i < 10; ++i) EXPECT_EQ(step_of(load_checkpoint(path)), 9);
  });
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < 4; ++t) {
    const CheckpointStore store(directory.path() / std::to_string(t));
    EXPECT_EQ(step_of(store.latest().checkpoint), 40 + t);
  }
}

TEST_F(CheckpointCases, AFullDiskIsAnErrorAndTheOldFileStays) {  // H5-09
  save_checkpoint(path, checkpoint_of(1));
  const int status = status_of_child([&] {
    limit(RLIMIT_FSIZE, 1 << 20);
    const std::string text =
        message_of([&] { save_checkpoint(path, checkpoint_of(2, 1'000'000)); });
    EXPECT_THAT(text, AllOf(HasSubstr("write: cannot write '" + path.string() + ".part'"),
                            HasSubstr("File too large")));
    EXPECT_EQ(step_of(load_checkpoint(path)), 1);
    save_checkpoint(path, checkpoint_of(3));  // the run may go on
    return testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(step_of(load_checkpoint(path)), 3);
  EXPECT_THAT(names_there(), testing::ElementsAre("state.h5"));
}

TEST_F(CheckpointCases, ADirectoryThatMayNotBeWrittenIsAnError) {  // H5-09
  save_checkpoint(path, checkpoint_of(1));
  fs::permissions(directory.path(), fs::perms::owner_read | fs::perms::owner_exec |
                                        fs::perms::others_read | fs::perms::others_exec);
  const int status = status_of_child([&] {
    if (geteuid() == 0 && setuid(65534) != 0) return 2;  // root may write anywhere
    EXPECT_THAT(message_of([&] { save_checkpoint(path, checkpoint_of(2)); }),
                HasSubstr("state.h5.part': Permission denied"));
    EXPECT_THAT(
        message_of([&] { CheckpointStore(directory.path() / "new").save(1, checkpoint_of(2)); }),
        HasSubstr("new': Permission denied"));
    return testing::Test::HasFailure() ? 1 : 0;
  });
  fs::permissions(directory.path(), fs::perms::owner_all);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(step_of(load_checkpoint(path)), 1);
  EXPECT_THAT(names_there(), testing::ElementsAre("state.h5"));
}

TEST_F(CheckpointCases, NoHdf5ObjectStaysOpen) {  // H5-14
  const auto open_objects = [] { return H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL); };
  const auto before = open_objects();
  save_checkpoint(path, checkpoint_of(1));
  (void)load_checkpoint(path);
  EXPECT_EQ(open_objects(), before);
  EXPECT_THROW(save_checkpoint(directory.path() / "none" / "x.h5", checkpoint_of(1)), IoError);
  Checkpoint undefined = checkpoint_of(1);
  undefined.parts[0].part.tensors.push_back({"a", Tensor()});
  EXPECT_THROW(save_checkpoint(path, undefined), ShapeError);
  fs::rename(path, directory.path() / "moved.h5");
  test::Bytes bytes = bytes_of_file(directory.path() / "moved.h5");
  bytes.back() ^= std::byte{1};
  EXPECT_THROW((void)load_checkpoint(directory.write("bad.h5", bytes)), IoError);
  EXPECT_EQ(open_objects(), before);
}

TEST_F(CheckpointCases, FlippedBitsGiveAValueOrAnError) {  // H5-15
  save_checkpoint(path, checkpoint_of(1));
  const test::Bytes good = bytes_of_file(path);
  Random random(7, "flips");
  int damaged = 0;
  int refused = 0;
  const int variants = repetitions("STEADY_BIT_FLIPS", 60);
  for (int variant = 0; variant < variants; ++variant) {
    test::Bytes bad = good;
    const std::int64_t flips = 1 + random.below(8);
    for (std::int64_t i = 0; i < flips; ++i) {
      const auto at = static_cast<std::size_t>(random.below(std::ssize(bad)));
      bad[at] ^= static_cast<std::byte>(1 << random.below(8));
    }
    damaged += bad == good ? 0 : 1;
    const fs::path file = directory.write("flipped.h5", bad);
    const int status = status_of_child([&] {
      limit(RLIMIT_CPU, 10);
      if (!test::under_address_sanitizer()) limit(RLIMIT_AS, rlim_t{4} << 30);
      try {
        return load_checkpoint(file).parts.size() == 2 ? 0 : 2;
      } catch (const Error&) {
        return 1;
      }
    });
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1)
        << "variant " << variant << ", status " << status;
    refused += WEXITSTATUS(status);
  }
  EXPECT_EQ(refused, damaged);  // the checksum finds them all
}

}  // namespace
}  // namespace steady
