// Hostile and odd safetensors files: what is refused, in which words, and what is taken.
#include <steadygrad/core/io/safetensors_header.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/safetensors.hpp>
#include <string>

#include "tests/core/io/safetensors_testing.hpp"
#include "tests/support/golden.hpp"

namespace steady::safetensors {
namespace {

using test::Bytes;
using test::counting;
using test::one_tensor;
using test::safetensors_bytes;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const Bytes& bytes, const ReadOptions& options = {}) {
  return test::message_of<IoError>([&] { (void)read_header(bytes, "m.safetensors", options); });
}

Header accepted(const Bytes& bytes, const ReadOptions& options = {}) {
  return read_header(bytes, "m.safetensors", options);
}

/// A file that says `length` for its header and has `size` bytes.
Bytes with_length(std::uint64_t length, std::size_t size) {
  Bytes bytes(size, std::byte{' '});
  for (std::size_t i = 0; i < 8 && i < size; ++i) {
    bytes[i] = static_cast<std::byte>(length >> 8 * i);
  }
  return bytes;
}

std::string two_tensors(const std::string& first, const std::string& second) {
  const std::string head = R"("dtype":"F32","shape":[1],"data_offsets":)";
  return R"({"a":{)" + head + first + R"(},"b":{)" + head + second + "}}";
}

TEST(SafetensorsHeader, EveryMalformedFileIsRefusedWithItsReason) {
  const std::map<std::string, std::string> reasons = {
      {"empty_file", "no header length"},
      {"truncated_length", "no header length"},
      {"length_only", "header longer than the file"},
      {"truncated_header", "header longer than the file"},
      {"header_length_beyond_file", "header longer than the file"},
      {"header_length_too_short", "invalid JSON"},
      {"header_length_zero", "header does not start with {"},
      {"header_length_huge", "header length above the limit"},
      {"header_length_all_ones", "header length above the limit"},
      {"header_length_4gib", "header length above the limit"},
      {"big_endian_length", "header length above the limit"},
      {"overlapping_offsets", "overlapping tensors"},
      {"same_range_twice", "overlapping tensors"},
      {"offset_out_of_range", "offset beyond the data"},
      {"offset_begin_after_end", "begin after end"},
      {"offset_negative", "offset is not a non-negative integer"},
      {"offset_float", "offset is not a non-negative integer"},
      {"offset_three_values", "data_offsets is not a pair"},
      {"offset_string", "offset is not a non-negative integer"},
      {"hole_in_data", "hole in the data"},
      {"trailing_bytes", "bytes after the last tensor"},
      {"truncated_data", "offset beyond the data"},
      {"duplicate_keys", "duplicate key"},
      {"duplicate_inner_keys", "duplicate key"},
      {"duplicate_keys_escaped", "duplicate key"},
      {"non_utf8_header", "ill-formed UTF-8"},
      {"negative_shape", "dimension is not a non-negative integer"},
      {"shape_float", "dimension is not a non-negative integer"},
      {"shape_bool", "dimension is not a non-negative integer"},
      {"shape_not_a_list", "shape is not a list"},
      {"shape_overflow", "shape overflows"},
      {"shape_mismatch", "shape and dtype do not match the byte range"},
      {"dtype_mismatch", "shape and dtype do not match the byte range"},
      {"dtype_unknown", "unknown dtype"},
      {"dtype_lowercase", "unknown dtype"},
      {"missing_dtype", "entry without exactly dtype, shape, data_offsets"},
      {"entry_not_object", "entry without exactly dtype, shape, data_offsets"},
      {"header_is_array", "header does not start with {"},
      {"header_leading_space", "header does not start with {"},
      {"header_trailing_garbage", "invalid JSON"},
      {"header_nan", "invalid JSON"},
      {"header_trailing_comma", "invalid JSON"},
      {"header_embedded_nul", "invalid JSON"},
      {"header_unpaired_string", "invalid JSON"},
      {"metadata_not_strings", "__metadata__ is not a map of texts"},
      {"deep_nesting_1000", "entry without exactly dtype, shape, data_offsets"},
      {"deep_nesting_100000", "entry without exactly dtype, shape, data_offsets"},
      {"deep_nesting_objects_unclosed", "has a field"},
      {"pickle_file", "header length above the limit"},
      {"html_error_page", "header length above the limit"},
      {"git_lfs_pointer", "header length above the limit"}};
  const auto folder = testing_support::golden_path("checkpoints/malformed");
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    SCOPED_TRACE(name);
    ++files;
    ASSERT_TRUE(reasons.contains(name));
    EXPECT_THAT(test::message_of<IoError>([&] { (void)File::open(entry.path()); }),
                AllOf(HasSubstr(entry.path().filename().string()), HasSubstr(reasons.at(name))));
  }
  EXPECT_EQ(files, reasons.size());
  EXPECT_EQ(files, 51U);
}

TEST(SafetensorsHeader, EveryUnusualButValidFileOpens) {
  const auto open = [](const std::string& name) {
    return File::open(testing_support::golden_path("checkpoints/edge_valid/" + name));
  };
  const File unicode = open("unicode_names.safetensors");
  EXPECT_EQ(unicode.tensors()[0].name, "caf\xC3\xA9.\xE9\x87\x8D\xE3\x81\xBF");
  EXPECT_EQ(unicode.tensors()[1].name, "esc\xC3\xA9\n\"q\"");
  EXPECT_EQ(open("no_tensors.safetensors").tensors().size(), 0U);
  EXPECT_THAT(open("metadata_only.safetensors").metadata(),
              ElementsAre(std::pair<std::string, std::string>("format", "pt")));
  const File order = open("data_order_differs.safetensors");
  EXPECT_EQ(order.tensors()[0].name, "a");
  EXPECT_EQ(order.at("z").begin, 24U);
  EXPECT_EQ(open("mixed_dtypes.safetensors").tensors().size(), 8U);
  EXPECT_EQ(open("whitespace_key_order.safetensors").at("a").numel(), 10);
  EXPECT_EQ(open("scalar_and_empty.safetensors").at("empty").numel(), 0);
  // Refused by limits of our own.
  EXPECT_THAT(test::message_of<IoError>([&] { open("rank_71.safetensors"); }),
              HasSubstr("'a' has more than 64 dimensions"));
  EXPECT_THAT(test::message_of<IoError>([&] { open("empty_with_huge_dims.safetensors"); }),
              HasSubstr("shape overflows; 'a' is F32 [1099511627776, 0, 1099511627776]"));
}

TEST(SafetensorsHeader, LengthIsHeldAgainstTheFileBeforeAnythingElse) {
  constexpr std::uint64_t Top = std::uint64_t{1} << 63;
  EXPECT_THAT(refusal(with_length(0, 48)), HasSubstr("it has 0 bytes, the file 48"));
  EXPECT_THAT(refusal(with_length(1, 48)), HasSubstr("header does not start with {"));
  EXPECT_THAT(refusal(with_length(~std::uint64_t{0}, 48)),
              AllOf(HasSubstr("'m.safetensors'"), HasSubstr("18446744073709551615 bytes"),
                    HasSubstr("the file has 48")));
  EXPECT_THAT(refusal(with_length(Top, 48)), HasSubstr("9223372036854775808"));
  EXPECT_THAT(refusal(with_length(48 - 7, 48)),
              HasSubstr("41 bytes behind the length, the file has "
                        "40"));
  EXPECT_THAT(refusal(with_length(100'000'001, 20)),
              AllOf(HasSubstr("100000001"), HasSubstr("100000000"), HasSubstr("20")));
  EXPECT_THAT(refusal(with_length(100'000'000, 20)),
              AllOf(HasSubstr("100000000 bytes behind the length"), HasSubstr("12")));
  EXPECT_THAT(refusal(with_length(0, 0)), HasSubstr("it takes 8 bytes, the file has 0"));
  EXPECT_THAT(refusal(with_length(0, 7)), HasSubstr("it takes 8 bytes, the file has 7"));
}

TEST(SafetensorsHeader, FieldsMustBeWhatTheyAre) {
  const auto offsets = [](const char* text) {
    return refusal(one_tensor(R"("F32")", "[1]", text, 4));
  };
  for (const char* text : {"[]", "[0]", "[0,4,8]", "null", "\"x\"", "{}", "4"}) {
    EXPECT_THAT(offsets(text), AllOf(HasSubstr("data_offsets is not a pair"), HasSubstr("'a'")))
        << text;
  }
  for (const char* text : {R"(["0","4"])", "[-4,0]", "[0.5,4]", "[0,1e3]", "[null,4]", "[[0],4]",
                           "[0,4.0]", "[-0,4]"}) {
    EXPECT_THAT(offsets(text),
                AllOf(HasSubstr("offset is not a non-negative integer"), HasSubstr("'a'")))
        << text;
  }
  EXPECT_THAT(refusal(one_tensor(R"("F32")", "[2,-1]", "[0,4]", 4)),
              HasSubstr("dimension is not a non-negative integer; 'a' has a negative number"));
  EXPECT_THAT(refusal(one_tensor("7", "[1]", "[0,4]", 4)),
              HasSubstr("unknown dtype; 'a' has a num"));
  const auto fields = [](const char* text) {
    return refusal(safetensors_bytes(std::string(R"({"a":)") + text + "}", counting(4)));
  };
  EXPECT_THAT(fields(R"({"dtype":"F32","shape":[1]})"), HasSubstr("'a' has no data_offsets"));
  EXPECT_THAT(fields(R"({"dtype":"F32","data_offsets":[0,4]})"), HasSubstr("'a' has no shape"));
  EXPECT_THAT(fields(R"({"shape":[1],"data_offsets":[0,4]})"), HasSubstr("'a' has no dtype"));
  EXPECT_THAT(fields(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})"),
              HasSubstr("'a' has a field 'x'"));
}

TEST(SafetensorsHeader, RangesMayNotBeReversedOrLeaveTheData) {
  const auto range = [](const char* text) {
    return refusal(one_tensor(R"("F32")", "[1]", text, 8));
  };
  EXPECT_THAT(range("[8,4]"), HasSubstr("begin after end; 'a' has data_offsets [8, 4]"));
  EXPECT_THAT(range("[0,9]"), HasSubstr("offset beyond the data; 'a' ends at byte 9 of 8"));
  EXPECT_THAT(range("[18446744073709551608,18446744073709551612]"),
              HasSubstr("offset beyond the data"));
}

TEST(SafetensorsHeader, RangeMustHaveTheSizeOfItsTensor) {
  const auto sizes = [](const char* dtype, const char* shape, const char* range) {
    return refusal(one_tensor(dtype, shape, range, 8));
  };
  EXPECT_THAT(sizes(R"("F32")", "[1000,1000]", "[0,4]"),
              HasSubstr("'a', F32 [1000, 1000], takes 4000000 bytes, its range 4"));
  EXPECT_THAT(sizes(R"("F32")", "[2]", "[0,4]"), HasSubstr("takes 8 bytes, its range 4"));
  EXPECT_THAT(sizes(R"("F16")", "[2]", "[0,8]"), HasSubstr("takes 4 bytes, its range 8"));
}

TEST(SafetensorsHeader, DataAreCoveredOnceAndWhole) {
  const auto both = [](const char* a, const char* b, std::size_t size) {
    return refusal(safetensors_bytes(two_tensors(a, b), counting(size)));
  };
  EXPECT_THAT(both("[0,4]", "[2,6]", 6),
              HasSubstr("overlapping tensors; 'b' begins at byte 2, before 'a' ends at 4"));
  EXPECT_THAT(both("[0,4]", "[8,12]", 12), HasSubstr("hole in the data; bytes 4 to 8"));
  const Bytes trailing = one_tensor(R"("F32")", "[1]", "[0,4]", 8);
  EXPECT_THAT(refusal(trailing), HasSubstr("bytes after the last tensor; 4 of 8"));
  EXPECT_EQ(accepted(trailing, {.allow_trailing_bytes = true}).ignored_bytes, 4U);
  EXPECT_EQ(accepted(safetensors_bytes(two_tensors("[4,8]", "[0,4]"), counting(8))).tensors[0].name,
            "b");
  // Nothing at all in a file with data is never right.
  EXPECT_THAT(refusal(safetensors_bytes("{}", counting(4)), {.allow_trailing_bytes = true}),
              HasSubstr("bytes after the last tensor"));
}

TEST(SafetensorsHeader, ShapesMayNotOverflow) {
  const auto shape = [](const char* text) {
    return refusal(one_tensor(R"("F32")", text, "[0,0]", 0));
  };
  for (const char* text : {"[65536,65536,65536,65536]", "[4294967296,4294967296]",
                           "[0,9223372036854775808]", "[0,9223372036854775807]"}) {
    EXPECT_THAT(shape(text), HasSubstr("shape overflows; 'a'")) << text;
  }
  std::string ones = "[1";
  for (int i = 1; i < 70; ++i) ones += ",1";
  EXPECT_THAT(refusal(one_tensor(R"("F32")", ones + "]", "[0,4]", 4)),
              HasSubstr("'a' has more than 64 dimensions"));
}

TEST(SafetensorsHeader, ScalarsAndEmptyTensorsAreLegal) {
  const Header header = accepted(safetensors_bytes(
      R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
          "e":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},
          "f":{"dtype":"F32","shape":[2,0,3],"data_offsets":[4,4]},
          "b":{"dtype":"BOOL","shape":[],"data_offsets":[4,5]}})",
      counting(5)));
  ASSERT_EQ(header.tensors.size(), 4U);
  EXPECT_EQ(header.tensors[0].numel(), 1);
  EXPECT_EQ(header.tensors[1].numel(), 0);
  EXPECT_THAT(header.tensors[2].dims, ElementsAre(2, 0, 3));
  EXPECT_EQ(header.tensors[3].numel(), 1);
}

TEST(SafetensorsHeader, UnsupportedTypesAreNamed) {
  for (const char* dtype : {"I16", "F8_E4M3", "F12", "U64", "f32", ""}) {
    EXPECT_THAT(refusal(one_tensor('"' + std::string(dtype) + '"', "[4]", "[0,8]", 8)),
                HasSubstr("unknown dtype; 'a' has '" + std::string(dtype) + "'"));
  }
}

TEST(SafetensorsHeader, MetadataHoldAnyTextAndNothingElse) {
  const Header header = accepted(safetensors_bytes(
      R"({"__metadata__" : {"a}b,": "}\",{[", "e":"\u00e9\ud83d\ude00"}, "x/y. z":
          {"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   )",
      counting(1)));
  EXPECT_THAT(header.metadata,
              ElementsAre(std::pair<std::string, std::string>("a}b,", "}\",{["),
                          std::pair<std::string, std::string>("e", "\xC3\xA9\xF0\x9F\x98\x80")));
  EXPECT_EQ(header.tensors[0].name, "x/y. z");
  for (const char* value : {"1", "null", "[]", "{}", "true", "1.5", "-1"}) {
    EXPECT_THAT(
        refusal(safetensors_bytes(std::string(R"({"__metadata__":{"k":)") + value + "}}", {})),
        HasSubstr("__metadata__ is not a map of texts; 'k'"))
        << value;
  }
  EXPECT_THAT(refusal(safetensors_bytes(R"({"__metadata__":"x"})", {})),
              HasSubstr("__metadata__ is not a map of texts"));
  EXPECT_THAT(refusal(safetensors_bytes(R"({"__metadata__":{"k":"1","k":"2"}})", {})),
              HasSubstr("duplicate key; 'k'"));
  EXPECT_THAT(refusal(safetensors_bytes(R"({"__metadata__":{},"__metadata__":{}})", {})),
              HasSubstr("duplicate key"));
}

TEST(SafetensorsHeader, DepthCostsNothing) {
  const std::string deep(100'000, '[');
  EXPECT_THAT(refusal(safetensors_bytes(R"({"__metadata__":{"k":)" + deep, {})),
              HasSubstr("'k' is a list"));
  EXPECT_THAT(refusal(safetensors_bytes(R"({"__metadata__":)" + deep, {})), HasSubstr("a list"));
  EXPECT_THAT(refusal(safetensors_bytes(R"({"a":{"dtype":"F32","shape":)" + deep, {})),
              HasSubstr("dimension is not a non-negative integer"));
}

TEST(SafetensorsHeader, MessagesShowForeignTextSafely) {
  const std::string name(1000, 'n');
  const std::string text = refusal(safetensors_bytes(
      R"({")" + name + R"(":{"dtype":"\u001b[31m","shape":[],"data_offsets":[0,0]}})", {}));
  EXPECT_THAT(text, HasSubstr("'\\x1B[31m'"));
  EXPECT_THAT(text, HasSubstr(name.substr(0, 80) + "...'"));
  EXPECT_LT(text.size(), 400U);
  EXPECT_LT(refusal(safetensors_bytes("{\"" + name, {})).size(), 400U);
}

}  // namespace
}  // namespace steady::safetensors
