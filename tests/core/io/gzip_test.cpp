#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/gzip.hpp>

#include "tests/core/data/files.hpp"

namespace steady {
namespace {

using test::Bytes;
using test::from_hex;
using test::gzip;
using test::message_of;
using testing::HasSubstr;

// CASES DA-13: an IDX file with the labels 3 and 7.
constexpr auto Good = "1f8b08000000000002036360e0606460606062660700796ad5200a000000";
constexpr auto BadChecksum = "1f8b08000000000002036360e0606460606062660700786ad5200a000000";

Bytes inflate_all(const Bytes& packed, std::size_t room = 4096) {
  GzipStream stream(packed, "labels.gz");
  Bytes out(room);
  out.resize(stream.read(out));
  return out;
}

Bytes joined(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Gzip, InflatesAMember) {
  const Bytes packed = from_hex(Good);
  EXPECT_TRUE(is_gzip(packed));
  EXPECT_EQ(inflate_all(packed), from_hex("00000801000000020307"));
}

TEST(Gzip, ConcatenatedMembersReadAsOneStream) {
  const Bytes packed = from_hex(Good);
  EXPECT_EQ(inflate_all(joined(packed, packed)),
            from_hex("0000080100000002030700000801000000020307"));
}

TEST(Gzip, WrongChecksumIsAnErrorThatNamesTheFile) {
  const std::string text = message_of<IoError>([] { inflate_all(from_hex(BadChecksum)); });
  EXPECT_THAT(text, HasSubstr("labels.gz"));
  EXPECT_THAT(text, HasSubstr("incorrect data check"));
}

TEST(Gzip, EveryTruncationIsAnError) {
  const Bytes packed = from_hex(Good);
  for (std::size_t size = 2; size < packed.size(); ++size) {
    const Bytes part(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THAT(message_of<IoError>([&] { inflate_all(part); }), HasSubstr("truncated")) << size;
  }
  const Bytes half = joined(packed, Bytes(packed.begin(), packed.begin() + 12));
  EXPECT_THAT(message_of<IoError>([&] { inflate_all(half); }), HasSubstr("truncated"));
}

TEST(Gzip, ZeroPaddingIsSkippedAndGarbageRefused) {
  const Bytes packed = from_hex(Good);
  EXPECT_EQ(inflate_all(joined(packed, Bytes(512))).size(), 10U);
  EXPECT_THROW(inflate_all(joined(packed, from_hex("4142"))), IoError);
  EXPECT_THROW(inflate_all(joined(packed, from_hex("00004142"))), IoError);
}

TEST(Gzip, ReadsInPiecesOfAnySize) {
  Bytes plain(10000);
  for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<std::byte>(i * i % 251);
  const Bytes packed = joined(gzip(plain), gzip(plain));
  for (const std::size_t piece : {1U, 7U, 9999U, 10000U, 10001U}) {
    GzipStream stream(packed, "pieces");
    Bytes out;
    Bytes buffer(piece);
    for (std::size_t got = piece; got == piece;) {
      got = stream.read(buffer);
      out.insert(out.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(got));
    }
    EXPECT_EQ(out, joined(plain, plain)) << piece;
  }
}

}  // namespace
}  // namespace steady
