#include <steadygrad/core/io/checkpoint.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/checkpoint_store.hpp>
#include <steadygrad/core/io/crc64.hpp>
#include <string>

#include "tests/core/io/checkpoint_testing.hpp"
#include "tests/support/message_of.hpp"

namespace steady {
namespace {

using test::bytes_of_file;
using test::checkpoint_of;
using test::step_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::message_of;
namespace fs = std::filesystem;

TEST(Crc64, HasTheValueOfItsStandardAndGoesOn) {
  const std::string text = "123456789";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(crc64(bytes), 0x995DC9BBDF1939FAU);
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(crc64(bytes.subspan(cut), crc64(bytes.first(cut))), 0x995DC9BBDF1939FAU) << cut;
  }
  EXPECT_EQ(crc64({}), 0U);
}

TEST(Checkpoint, ComesBackAsItWasSaved) {
  const test::TemporaryDirectory directory;
  const fs::path path = directory.path() / "state.h5";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Checkpoint saved;
  saved.parts.push_back({"empty", {}});
  saved.parts.push_back({"model",
                         {{{"a.weight", Tensor::of({2, 3}, {1, -2, 3, 4, 5, 6})},
                           {"b", Tensor::of({2}, {0.1, nan}, Dtype::F64)},
                           {"count", Tensor::of({}, {7}, Dtype::I64)},
                           {"ids", Tensor::of({3}, {1, 2, 3}, Dtype::I32)},
                           {"none", Tensor::empty({0, 4})}},
                          {{"seed", ~std::uint64_t{0}},
                           {"step", std::int64_t{-3}},
                           {"lr", 0.1},
                           {"text", std::string("two\nlines é")}}}});
  save_checkpoint(path, saved);
  const Checkpoint loaded = load_checkpoint(path);
  ASSERT_EQ(loaded.parts.size(), 2U);
  EXPECT_THAT(loaded.find("empty")->tensors, IsEmpty());
  const CheckpointPart& part = *loaded.find("model");
  EXPECT_EQ(part.values, saved.parts[1].part.values);
  ASSERT_EQ(part.tensors.size(), 5U);
  for (const NamedTensor& t : saved.parts[1].part.tensors) {
    const Tensor other = find(part.tensors, t.name);
    ASSERT_TRUE(other.defined()) << t.name;
    EXPECT_EQ(describe(other), describe(t.value));
    const auto bytes = [](const Tensor& x) {
      return std::string(reinterpret_cast<const char*>(x.storage().bytes()),
                         static_cast<std::size_t>(x.numel() * size_of(x.dtype())));
    };
    EXPECT_EQ(bytes(other), bytes(t.value)) << t.name;
  }
  EXPECT_EQ(loaded.find("optimizer"), nullptr);
}

TEST(Checkpoint, EqualOnesGiveEqualFilesAndNothingIsLeftBeside) {
  const test::TemporaryDirectory directory;
  save_checkpoint(directory.path() / "a.h5", checkpoint_of(3));
  save_checkpoint(directory.path() / "b.h5", checkpoint_of(4));
  save_checkpoint(directory.path() / "b.h5", checkpoint_of(3));
  EXPECT_EQ(bytes_of_file(directory.path() / "a.h5"), bytes_of_file(directory.path() / "b.h5"));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 2);
}

TEST(Checkpoint, AnyHdf5ProgramReadsItByDottedPath) {
  const test::TemporaryDirectory directory;
  const fs::path path = directory.path() / "state.h5";
  save_checkpoint(path, checkpoint_of(3));
  const hdf5::Group root = hdf5::File::open(path).root();
  EXPECT_THAT(root.groups(), ElementsAre("model", "progress"));
  EXPECT_EQ(root.group("model").read("conv1.weight").shape(), (Shape{1000}));
  EXPECT_EQ(root.attributes(), (hdf5::Attributes{{"format", "steadygrad checkpoint 1"}}));
  const std::string front(reinterpret_cast<const char*>(bytes_of_file(path).data()), 60);
  EXPECT_THAT(front, testing::StartsWith("steadygrad checkpoint 1\nbytes " +
                                         std::to_string(fs::file_size(path)) + "\ncrc64 "));
}

TEST(Checkpoint, EveryDamageIsSeenBeforeHdf5IsAsked) {
  const test::TemporaryDirectory directory;
  const fs::path path = directory.path() / "state.h5";
  save_checkpoint(path, checkpoint_of(3, 8));
  const test::Bytes good = bytes_of_file(path);
  for (std::size_t at = 0; at < good.size(); at += at < 600 ? 1 : 97) {
    test::Bytes bad = good;
    bad[at] ^= std::byte{4};
    EXPECT_THAT(message_of([&] { (void)load_checkpoint(directory.write("bad.h5", bad)); }),
                AllOf(HasSubstr("bad.h5' "), HasSubstr("checkpoint: '")))
        << at;
  }
  test::Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THAT(
      message_of([&] { (void)load_checkpoint(directory.write("bad.h5", longer)); }),
      HasSubstr(fmt::format("is damaged: has {} bytes, expects {}", good.size() + 1, good.size())));
}

TEST(Checkpoint, SaysWhatAFileIsInstead) {
  const test::TemporaryDirectory directory;
  const fs::path path = directory.path() / "state.h5";
  const auto refusal = [&](std::string_view text) {
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    return message_of([&] {
      (void)load_checkpoint(directory.write("x.h5", {begin, begin + text.size()}));
    });
  };
  EXPECT_THAT(message_of([&] { (void)load_checkpoint(path); }),
              HasSubstr("checkpoint: there is no file '" + path.string() + "'"));
  EXPECT_THAT(message_of([&] { (void)load_checkpoint(directory.path()); }),
              HasSubstr("there is no file"));
  EXPECT_THAT(refusal("PK\3\4 something else"), HasSubstr("is no checkpoint of steadygrad"));
  const hdf5::File other = hdf5::File::create_in_memory("other");
  const std::vector<std::byte> image = other.image();
  EXPECT_THAT(refusal({reinterpret_cast<const char*>(image.data()), image.size()}),
              HasSubstr("is an HDF5 file, but no checkpoint"));
  std::string newer = "steadygrad checkpoint 2\nbytes 600\n";
  newer.resize(600, ' ');
  EXPECT_THAT(refusal(newer), HasSubstr("has format version '2'; this program reads 1"));
}

TEST(Checkpoint, RefusesBadNamesBeforeItWrites) {
  const test::TemporaryDirectory directory;
  const fs::path path = directory.path() / "state.h5";
  const auto refusal = [&](const Checkpoint& c) {
    const std::string text = message_of([&] { save_checkpoint(path, c); });
    EXPECT_TRUE(fs::is_empty(directory.path()));
    return text;
  };
  const Tensor t = Tensor::zeros({1});
  EXPECT_THAT(refusal({{{"m", {{{"a", t}, {"a", t}}, {}}}}}),
              HasSubstr("the tensor 'a' of 'm' is given twice"));
  EXPECT_THAT(refusal({{{"m", {{}, {{"a", 1.0}, {"a", 2.0}}}}}}),
              HasSubstr("the value 'a' of 'm' is given twice"));
  EXPECT_THAT(refusal({{{"m", {}}, {"m", {}}}}), HasSubstr("the part 'm' is given twice"));
  EXPECT_THAT(refusal({{{"m", {{}, {{"a", std::string("x\0y", 3)}}}}}}), HasSubstr("holds a NUL"));
  EXPECT_THAT(refusal({{{"m", {{{"a", Tensor()}}, {}}}}}), HasSubstr("undefined"));
}

TEST(CheckpointStore, KeepsTheLastFewAndFindsTheNewest) {
  const test::TemporaryDirectory directory;
  const CheckpointStore store(directory.path() / "run" / "deep", {.keep = 2});
  EXPECT_TRUE(store.is_directory());
  EXPECT_THAT(store.files(), IsEmpty());
  EXPECT_THAT(message_of([&] { (void)store.latest(); }), HasSubstr("there is none in '"));
  for (const std::int64_t step : {9, 10, 100}) store.save(step, checkpoint_of(step));
  EXPECT_THAT(store.files(), ElementsAre(store.path() / "step-000000000100.h5",
                                         store.path() / "step-000000000010.h5"));
  const LatestCheckpoint latest = store.latest();
  EXPECT_EQ(step_of(latest.checkpoint), 100);
  EXPECT_EQ(latest.file, store.files()[0]);
  EXPECT_THAT(latest.skipped, IsEmpty());
  EXPECT_THROW(CheckpointStore("x", {.keep = 0}), Error);
}

TEST(CheckpointStore, OneFileIsReplacedByEachSave) {
  const test::TemporaryDirectory directory;
  const CheckpointStore store(directory.path() / "state.h5");
  EXPECT_FALSE(store.is_directory());
  EXPECT_THAT(store.files(), IsEmpty());
  store.save(2, checkpoint_of(2));
  store.save(1, checkpoint_of(1));
  EXPECT_EQ(step_of(store.latest().checkpoint), 1);
  directory.write("state.h5", test::Bytes(700, std::byte{'x'}));
  EXPECT_THAT(message_of([&] { (void)store.latest(); }), HasSubstr("is no checkpoint"));
}

TEST(CheckpointStore, FallsBackToTheNewestThatCanBeReadAndSaysSo) {  // CASES H5-12
  const test::TemporaryDirectory directory;
  const CheckpointStore store(directory.path(), {.keep = 3});
  for (const std::int64_t step : {1, 2, 3}) store.save(step, checkpoint_of(step));
  fs::resize_file(store.files()[0], fs::file_size(store.files()[0]) - 1);
  const LatestCheckpoint latest = store.latest();
  EXPECT_EQ(step_of(latest.checkpoint), 2);
  EXPECT_THAT(latest.skipped, ElementsAre(HasSubstr("step-000000000003.h5' is truncated: has ")));
  for (const fs::path& file : store.files()) fs::resize_file(file, 600);
  EXPECT_THAT(message_of([&] { (void)store.latest(); }),
              AllOf(HasSubstr("can be read"), HasSubstr("000003.h5'"), HasSubstr("000001.h5'")));
}

// Going on from an older file would end in overwriting what another program can read.
TEST(CheckpointStore, StopsAtANewerFormatAndAtAFileItMayNotRead) {
  const test::TemporaryDirectory directory;
  const CheckpointStore store(directory.path(), {.keep = 3});
  for (const std::int64_t step : {1, 2}) store.save(step, checkpoint_of(step));
  const fs::path newest = store.files()[0];
  test::Bytes newer = bytes_of_file(newest);
  newer[std::string_view("steadygrad checkpoint ").size()] = std::byte{'2'};
  directory.write(newest.filename().string(), newer);
  EXPECT_THROW((void)store.latest(), ForeignCheckpoint);
  EXPECT_THROW(store.prepare(1), Error);
  EXPECT_TRUE(fs::exists(newest));  // not set aside as damaged
  if (::geteuid() == 0) return;     // may read everything
  fs::permissions(newest, fs::perms::none);
  EXPECT_THROW((void)store.latest(), ForeignCheckpoint);
}

TEST(CheckpointStore, LaterStepsAreNotPassedOver) {
  const test::TemporaryDirectory directory;
  const CheckpointStore store(directory.path(), {.keep = 1});
  store.save(300, checkpoint_of(300));
  EXPECT_THAT(message_of([&] { store.save(200, checkpoint_of(200)); }),
              HasSubstr("000300.h5' is from a later step than 200"));
  fs::resize_file(store.files()[0], 600);
  directory.write("step-000000000250.h5.part", {});
  store.save(200, checkpoint_of(200));
  EXPECT_THAT(store.files(), ElementsAre(directory.path() / "step-000000000200.h5"));
  EXPECT_TRUE(fs::exists(directory.path() / "step-000000000300.h5.damaged"));
  EXPECT_FALSE(fs::exists(directory.path() / "step-000000000250.h5.part"));
}

}  // namespace
}  // namespace steady
