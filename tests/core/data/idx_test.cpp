#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/data/idx.hpp>
#include <steadygrad/core/error.hpp>

#include "tests/core/data/files.hpp"

namespace steady {
namespace {

using test::Bytes;
using test::from_hex;
using test::gzip;
using test::idx;
using test::message_of;
using test::TemporaryDirectory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct IdxFile : testing::Test {
  TemporaryDirectory directory;

  std::string error_of(const Bytes& bytes, const std::string& name = "file") {
    const auto path = directory.write(name, bytes);
    const std::string text = message_of<IoError>([&] { (void)read_idx(path); });
    EXPECT_THAT(text, HasSubstr(path.string()));
    return text;
  }
};

TEST_F(IdxFile, ReadsAnyRank) {
  const IdxArray labels = read_idx(directory.write("labels", idx(0x08, {5}, 5)));
  EXPECT_THAT(labels.dims, ElementsAre(5));
  EXPECT_THAT(to_int64(labels), ElementsAre(0, 1, 2, 3, 4));
  const IdxArray deep =
      read_idx(directory.write("deep", idx(0x08, {2, 1, 1, 1, 1, 1, 1, 1, 1, 3}, 6)));
  EXPECT_EQ(deep.dims.size(), 10U);
  EXPECT_EQ(deep.numel(), 6);
  const IdxArray empty = read_idx(directory.write("empty", idx(0x08, {0, 28, 28}, 0)));
  EXPECT_EQ(empty.numel(), 0);
}

TEST_F(IdxFile, ReadsEveryElementType) {
  const auto floats = [&](const char* hex) {
    return to_float(read_idx(directory.write("file", from_hex(hex))));
  };
  EXPECT_THAT(floats("000008010000000280ff"), ElementsAre(128, 255));
  EXPECT_THAT(floats("000009010000000280ff"), ElementsAre(-128, -1));
  EXPECT_THAT(floats("00000b01000000020102fffe"), ElementsAre(258, -2));
  EXPECT_THAT(floats("00000c010000000200010000fffffffe"), ElementsAre(65536, -2));
  EXPECT_THAT(floats("00000d01000000023fc00000c0000000"), ElementsAre(1.5F, -2.0F));
  EXPECT_THAT(floats("00000e01000000013ff8000000000000"), ElementsAre(1.5F));
}

TEST_F(IdxFile, IntegersComeOutExactlyAndFloatsAreRefused) {
  const auto path = directory.write("i32", from_hex("00000c01000000027fffffff80000000"));
  EXPECT_THAT(to_int64(read_idx(path)), ElementsAre(2147483647, -2147483648LL));
  const IdxArray real = read_idx(directory.write("f32", from_hex("00000d01000000013fc00000")));
  EXPECT_THAT(message_of<IoError>([&] { (void)to_int64(real); }),
              AllOf(HasSubstr("f32"), HasSubstr("float")));
}

// CASES DA-01: the name says nothing, the first bytes do.
TEST_F(IdxFile, GzipIsRecognisedWhateverTheName) {
  const Bytes packed = gzip(idx(0x08, {2, 3}, 6));
  for (const char* name : {"images-idx2-ubyte.gz", "images-idx2-ubyte"}) {
    const IdxArray array = read_idx(directory.write(name, packed));
    EXPECT_THAT(array.dims, ElementsAre(2, 3));
    EXPECT_THAT(to_int64(array), ElementsAre(0, 1, 2, 3, 4, 5));
  }
}

// CASES DA-02.
TEST_F(IdxFile, EveryWrongLengthIsNamedWithBothSizes) {
  for (const std::size_t size : {0U, 3U, 8U, 15U}) {
    Bytes bytes = idx(0x08, {10, 2, 2}, 40);
    bytes.resize(size);
    EXPECT_THAT(error_of(bytes), HasSubstr("has " + std::to_string(size) + " bytes"));
  }
  EXPECT_THAT(error_of(idx(0x08, {10, 2, 2}, 39)),
              AllOf(HasSubstr("10 x 2 x 2"), HasSubstr("56 bytes expected; it has 55")));
  EXPECT_THAT(error_of(idx(0x08, {10, 2, 2}, 41)), HasSubstr("56 bytes expected; it has 57"));
  EXPECT_THAT(error_of(gzip(idx(0x08, {10, 2, 2}, 39))), HasSubstr("56 bytes expected; it has 55"));
  EXPECT_THAT(error_of(gzip(idx(0x08, {10, 2, 2}, 41))), HasSubstr("56 bytes expected; it has 57"));
}

// CASES DA-03.
TEST_F(IdxFile, WrongRankDecodesTheMagicNumber) {
  const auto path = directory.write("labels", idx(0x08, {4}, 4));
  EXPECT_THAT(message_of<IoError>([&] { (void)read_idx(path, 3); }),
              AllOf(HasSubstr(path.string()),
                    HasSubstr("rank 1, unsigned byte (magic 2049); rank 3 expected")));
  EXPECT_EQ(read_idx(path, 1).numel(), 4);
}

// CASES DA-05.
TEST_F(IdxFile, HostileHeadersThrowBeforeAnythingIsAllocated) {
  EXPECT_THAT(error_of(idx(0x08, {4294967295U, 65535, 65535}, 4)),
              AllOf(HasSubstr("4294967295 x 65535 x 65535"), HasSubstr("it has 20")));
  EXPECT_THAT(error_of(idx(0x0E, {4294967295U, 4294967295U, 4294967295U}, 4)),
              HasSubstr("more bytes than 64 bits count"));
  EXPECT_THAT(error_of(idx(0x08, {}, 16)), HasSubstr("rank 0"));
  EXPECT_THAT(error_of(from_hex("000008ff0000000100000001000000010000000a")),
              AllOf(HasSubstr("has 20 bytes"), HasSubstr("rank 255 alone has 1024")));
  EXPECT_THAT(error_of(idx(0x07, {2}, 2)), HasSubstr("element type 0x07"));
  EXPECT_THAT(error_of(from_hex("89504e470d0a1a0a")), HasSubstr("begins with 89 50 4E 47"));
  EXPECT_THAT(error_of(gzip(idx(0x08, {4294967295U, 65535}, 4))), HasSubstr("bytes of gzip data"));
}

// The count in the message stays far below what is packed: the rest was never inflated.
TEST_F(IdxFile, GzipBombIsInflatedOnlyALittleBeyondThePromise) {
  const std::string text = error_of(gzip(idx(0x08, {4}, std::size_t{8} << 20, 1)));
  EXPECT_THAT(text, HasSubstr("12 bytes expected; it has at least "));
  const long long counted = std::stoll(text.substr(text.rfind("least ") + 6));
  EXPECT_GT(counted, 12);
  EXPECT_LE(counted, 2 << 20);
}

// CASES DA-13: the checksum lies behind the last element.
TEST_F(IdxFile, GzipChecksumIsReached) {
  const char* good = "1f8b08000000000002036360e0606460606062660700796ad5200a000000";
  const IdxArray labels = read_idx(directory.write("labels.gz", from_hex(good)), 1);
  EXPECT_THAT(to_int64(labels), ElementsAre(3, 7));
  EXPECT_THAT(
      error_of(from_hex("1f8b08000000000002036360e0606460606062660700786ad5200a000000"), "bad.gz"),
      HasSubstr("incorrect data check"));
  EXPECT_THAT(error_of(from_hex(std::string(good).substr(0, 40))), HasSubstr("truncated"));
}

// CASES DA-13: a file whose elements continue in a second gzip member.
TEST_F(IdxFile, ElementsMaySpanGzipMembers) {
  const Bytes whole = idx(0x08, {6}, 6);
  Bytes packed = gzip(Bytes(whole.begin(), whole.begin() + 10));
  const Bytes second = gzip(Bytes(whole.begin() + 10, whole.end()));
  packed.insert(packed.end(), second.begin(), second.end());
  EXPECT_THAT(to_int64(read_idx(directory.write("two.gz", packed))), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(IdxFile, MissingFilesAndDirectoriesAreNamed) {
  EXPECT_THAT(message_of<IoError>([&] { (void)read_idx(directory.path() / "nothing"); }),
              AllOf(HasSubstr("nothing"), HasSubstr("does not exist")));
  EXPECT_THAT(message_of<IoError>([&] { (void)read_idx(directory.path()); }),
              HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace steady
