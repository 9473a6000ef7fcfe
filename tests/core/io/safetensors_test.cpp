// Values in and out of safetensors files.
#include <steadygrad/core/io/safetensors.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/half.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <string>

#include "tests/core/io/safetensors_testing.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/message_of.hpp"

namespace steady::safetensors {
namespace {

using test::Bytes;
using test::one_tensor;
using test::safetensors_bytes;
using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::golden_path;
using testing_support::message_of;

constexpr float Inf = std::numeric_limits<float>::infinity();

std::vector<double> values(const Tensor& t) {
  const Tensor copy = t.detached_copy(Dtype::F64);
  const auto data = copy.data<double>();
  return {data.begin(), data.end()};
}

Bytes read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  Bytes bytes(text.size());
  std::ranges::transform(text, bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

/// What comes back of tensors written and read.
File round_trip(const TemporaryDirectory& dir, std::vector<Stored> tensors,
                const Metadata& metadata = {}) {
  write(dir.path() / "m.safetensors", tensors, metadata);
  return File::open(dir.path() / "m.safetensors");
}

TEST(Half, ConvertsItsCorners) {
  EXPECT_EQ(half_to_float(0x0001), 5.960464477539063e-08F);
  EXPECT_EQ(half_to_float(0x03FF), 6.097555160522461e-05F);
  EXPECT_EQ(half_to_float(0x0400), 6.103515625e-05F);
  EXPECT_EQ(half_to_float(0x3C01), 1.0009765625F);
  EXPECT_EQ(half_to_float(0x7BFF), 65504.0F);
  EXPECT_EQ(half_to_float(0x7C00), Inf);
  EXPECT_EQ(half_to_float(0xFC00), -Inf);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(half_to_float(0x8000)), 0x80000000U);
  EXPECT_TRUE(std::isnan(half_to_float(0x7E01)));
  EXPECT_EQ(bfloat16_to_float(0x0001), 9.183549615799121e-41F);
  EXPECT_EQ(bfloat16_to_float(0x3F81), 1.0078125F);
  EXPECT_EQ(bfloat16_to_float(0x7F80), Inf);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(bfloat16_to_float(0x8000)), 0x80000000U);
  EXPECT_TRUE(std::isnan(bfloat16_to_float(0x7FC1)));
}

TEST(Half, RoundsToNearestTiesToEven) {
  const auto half = [](float x) { return half_to_float(float_to_half(x)); };
  const auto brain = [](float x) { return bfloat16_to_float(float_to_bfloat16(x)); };
  EXPECT_EQ(brain(1.00390625F), 1.0F);
  EXPECT_EQ(brain(1.01171875F), 1.015625F);
  EXPECT_EQ(brain(3.3961775e38F), Inf);
  EXPECT_EQ(brain(65519.99F), 65536.0F);
  EXPECT_EQ(brain(65520.0F), 65536.0F);
  EXPECT_EQ(half(1.00390625F), 1.00390625F);
  EXPECT_EQ(half(1.01171875F), 1.01171875F);
  EXPECT_EQ(half(3.3961775e38F), Inf);
  EXPECT_EQ(half(65519.99F), 65504.0F);
  EXPECT_EQ(half(65520.0F), Inf);
  EXPECT_EQ(half(-65520.0F), -Inf);
  EXPECT_EQ(half(0x1p-25F), 0.0F);          // a tie with zero
  EXPECT_EQ(half(0x1.8p-24F), 0x1p-23F);    // a tie, up
  EXPECT_EQ(half(0x1.FFFp-15F), 0x1p-14F);  // from the subnormals into the normals
  // A NaN whose payload lies in the lost bits must not become infinite.
  const float nan = std::bit_cast<float>(0x7F800001U);
  EXPECT_TRUE(std::isnan(half(nan)));
  EXPECT_TRUE(std::isnan(brain(nan)));
}

TEST(Half, KeepsEveryValueOfItsOwn) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    const bool nan = (bits & 0x7FFFU) > 0x7C00U;
    const std::uint32_t back = float_to_half(half_to_float(b));
    ASSERT_EQ(back, nan ? bits | 0x200U : bits);
    const bool brain_nan = (bits & 0x7FFFU) > 0x7F80U;
    ASSERT_EQ(float_to_bfloat16(bfloat16_to_float(b)), brain_nan ? bits | 0x40U : bits);
  }
}

TEST(Half, RoundsADoubleOnce) {
  // Just above the middle of 1 and the next half, and nearer to the middle than a float can say.
  const double above = 1.0 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(half_to_float(float_to_half(static_cast<float>(above))), 1.0F);
  EXPECT_EQ(half_to_float(float_to_half(narrow_to_odd(above))), 1.0F + 0x1p-10F);
  EXPECT_EQ(half_to_float(float_to_half(narrow_to_odd(-above))), -1.0F - 0x1p-10F);
  EXPECT_EQ(bfloat16_to_float(float_to_bfloat16(narrow_to_odd(1e300))), Inf);
  EXPECT_EQ(narrow_to_odd(0.5), 0.5F);
}

TEST(Safetensors, MixedTypesReadAsTheirValues) {
  const File file = File::open(golden_path("checkpoints/edge_valid/mixed_dtypes.safetensors"));
  const Tensor brain = file.read("bf16");
  EXPECT_EQ(brain.dtype(), Dtype::F32);
  EXPECT_EQ(brain.data<float>()[0], 1.0F);
  EXPECT_EQ(brain.data<float>()[1], -Inf);
  EXPECT_TRUE(std::isnan(brain.data<float>()[2]));
  EXPECT_EQ(brain.data<float>()[3], 9.183549615799121e-41F);
  EXPECT_EQ(file.read("f64").dtype(), Dtype::F64);
  EXPECT_EQ(file.read("i64").dtype(), Dtype::I64);
  EXPECT_EQ(file.read("i32").dtype(), Dtype::I32);
  EXPECT_EQ(file.read("u8").dtype(), Dtype::I32);
  EXPECT_EQ(file.read("bool_").dtype(), Dtype::I32);
  EXPECT_EQ(file.read("f16", Dtype::F64).dtype(), Dtype::F64);
  EXPECT_EQ(file.bytes("bool_").size(), static_cast<std::size_t>(file.at("bool_").numel()));
}

TEST(Safetensors, ConversionsThatLoseTheMeaningAreRefused) {
  const TemporaryDirectory dir;
  const File file =
      round_trip(dir, {{"i", Tensor::of({2}, {1.0, 5e9}, Dtype::I64)}, {"f", Tensor::ones({2})}});
  EXPECT_THAT(message_of([&] { (void)file.read("f", Dtype::I32); }),
              HasSubstr("F32 cannot become i32"));
  EXPECT_THAT(message_of([&] { (void)file.read("i", Dtype::F32); }),
              HasSubstr("I64 cannot become f32"));
  EXPECT_THAT(message_of([&] { (void)file.read("i", Dtype::I32); }),
              HasSubstr("5000000000 does not fit i32"));
  EXPECT_THAT(message_of([&] { (void)file.read("nothing"); }),
              HasSubstr("m.safetensors': there is no such tensor"));
}

TEST(Safetensors, RanksBeyondOurTensorsAreListedButNotRead) {
  const TemporaryDirectory dir;
  const File file = File::open(
      dir.write("m.safetensors", one_tensor(R"("U8")", "[1,1,1,1,1,1,1,1,2]", "[0,2]", 2)));
  EXPECT_EQ(file.at("a").dims.size(), 9U);
  EXPECT_THAT(message_of([&] { (void)file.read("a"); }),
              HasSubstr("a tensor has at most 8 dimensions; got 9"));
  EXPECT_EQ(file.bytes("a")[1], std::byte{1});
}

TEST(Safetensors, DataMayBeginAtAnyAddress) {
  const TemporaryDirectory dir;
  const std::string entries =
      R"({"b":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]},"d":{"dtype":"F64","shape":[1],)"
      R"("data_offsets":[2,10]},"f":{"dtype":"F32","shape":[1],"data_offsets":[10,14]}})";
  const Bytes data = test::from_hex("803F000000000000F83F00002040");
  for (std::size_t pad = 0; pad < 8; ++pad) {
    const File file = File::open(
        dir.write("m.safetensors", safetensors_bytes(entries + std::string(pad, ' '), data)));
    EXPECT_EQ(file.read("b").item(), 1.0);
    EXPECT_EQ(file.read("d").item(), 1.5);
    EXPECT_EQ(file.read("f").item(), 2.5);
  }
}

TEST(Safetensors, NumbersAreLittleEndianAndTheHeaderIsAligned) {
  const std::vector<Stored> one{{"x", Tensor::ones({1})}};
  const Bytes bytes = encode(one);
  EXPECT_EQ(bytes.size() % 4, 0U);
  EXPECT_EQ((bytes.size() - 4) % 8, 0U);
  EXPECT_EQ(Bytes(bytes.end() - 4, bytes.end()), test::from_hex("0000803F"));
}

TEST(Safetensors, FilesAreThoseOfThePythonPackage) {
  for (const char* name : {"minimind_f32", "minimind_bf16", "batchnorm_cnn", "gpt2_layernorm"}) {
    SCOPED_TRACE(name);
    const auto path = golden_path(std::string("checkpoints/") + name + "/model.safetensors");
    const File file = File::open(path);
    std::vector<Stored> tensors;
    for (const TensorInfo& t : file.tensors()) {
      tensors.push_back({t.name, file.read(t.name), t.type});
    }
    std::ranges::reverse(tensors);  // the order given does not matter
    EXPECT_EQ(encode(tensors, file.metadata()), read_bytes(path));
  }
}

TEST(Safetensors, EveryTypeComesBack) {
  const TemporaryDirectory dir;
  const Tensor small = Tensor::of({3}, {0, 1, 1}, Dtype::I32);
  const Tensor real = Tensor::of({2, 2}, {0.5, -1.0, 3.0, 65504.0}, Dtype::F64);
  std::vector<Stored> tensors{{"empty", Tensor::empty({2, 0, 3})},
                              {"scalar", Tensor::scalar(7, Dtype::I64)}};
  for (const Type type : {Type::Bool, Type::U8, Type::I8, Type::I32, Type::I64}) {
    tensors.push_back({std::string(to_string(type)), small, type});
  }
  for (const Type type : {Type::F16, Type::BF16, Type::F32, Type::F64}) {
    tensors.push_back({std::string(to_string(type)), real, type});
  }
  const File file = round_trip(dir, tensors);
  EXPECT_EQ(file.read("empty").shape(), (Shape{2, 0, 3}));
  EXPECT_EQ(file.read("scalar").item(), 7.0);
  for (const Stored& t : tensors) {
    if (!t.type) continue;
    EXPECT_EQ(file.at(t.name).type, *t.type);
    EXPECT_EQ(file.read(t.name).shape(), t.value.shape());
    std::vector<double> want = values(t.value);
    if (*t.type == Type::BF16) want[3] = 65536.0;
    EXPECT_EQ(values(file.read(t.name)), want) << t.name;
  }
}

TEST(Safetensors, ValuesThatDoNotFitTheirTypeAreRefused) {
  const auto store = [](double value, Type type) {
    const std::vector<Stored> one{{"x", Tensor::of({1}, {value}, Dtype::I64), type}};
    return message_of([&] { (void)encode(one); });
  };
  EXPECT_THAT(store(2, Type::Bool), HasSubstr("'x': 2 does not fit"));
  EXPECT_THAT(store(-1, Type::U8), HasSubstr("'x': -1 does not fit"));
  EXPECT_THAT(store(128, Type::I8), HasSubstr("'x': 128 does not fit"));
  EXPECT_THAT(store(1, Type::F32), HasSubstr("'x': i64 cannot become F32"));
}

TEST(Safetensors, ElementsLieInLogicalOrder) {
  const TemporaryDirectory dir;
  const Tensor x = Tensor::of({2, 3}, {1, 2, 3, 4, 5, 6});
  const File file =
      round_trip(dir, {{"t", permute(x, {1, 0})}, {"e", Tensor::scalar(5) * Tensor::ones({3})}});
  EXPECT_EQ(file.read("t").shape(), (Shape{3, 2}));
  EXPECT_THAT(values(file.read("t")), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(values(file.read("e")), ElementsAre(5, 5, 5));
}

TEST(Safetensors, NamesAreAnyUtf8AndMetadataAnyText) {
  const TemporaryDirectory dir;
  const std::string odd = "a/b.c \xC3\xA9\xF0\x9F\x98\x80\"\n\\" + std::string(300, 'x');
  const File file = round_trip(dir, {{odd, Tensor::ones({1})}}, {{"k}\"", "{,}"}});
  EXPECT_EQ(file.read(odd).item(), 1.0);
  EXPECT_THAT(file.metadata(), ElementsAre(std::pair<std::string, std::string>("k}\"", "{,}")));
}

TEST(Safetensors, WriterRefusesWhatNoReaderCouldTake) {
  const Tensor x = Tensor::ones({1});
  const auto refusal = [](std::vector<Stored> tensors, const Metadata& metadata = {}) {
    return message_of([&] { (void)encode(tensors, metadata); });
  };
  EXPECT_THAT(refusal({{"a", x}, {"a", x}}), HasSubstr("'a' comes twice"));
  EXPECT_THAT(refusal({{"a", Tensor()}}), HasSubstr("'a' is undefined"));
  EXPECT_THAT(refusal({{"__metadata__", x}}), HasSubstr("'__metadata__' cannot be"));
  EXPECT_THAT(refusal({{"\xFF", x}}), HasSubstr("must be UTF-8"));
  EXPECT_THAT(refusal({{"a", x}}, {{"k", "1"}, {"k", "2"}}), HasSubstr("'k' comes twice"));
}

TEST(Safetensors, OneTensorUnderTwoNamesIsStoredOnce) {
  const TemporaryDirectory dir;
  const Tensor x = Tensor::of({2, 2}, {1, 2, 3, 4});
  const File file = round_trip(
      dir, {{"embed.weight", x}, {"head.weight", x}, {"flat", x.alias({4})}}, {{"format", "pt"}});
  EXPECT_EQ(file.tensors().size(), 2U);
  EXPECT_THAT(file.aliases(),
              ElementsAre(std::pair<std::string, std::string>("head.weight", "embed.weight")));
}

TEST(Safetensors, FailedWriteLeavesTheOldFile) {
  const TemporaryDirectory dir;
  const File old = round_trip(dir, {{"x", Tensor::ones({1})}});
  const std::vector<Stored> bad{{"x", Tensor()}};
  EXPECT_THROW(write(dir.path() / "m.safetensors", bad), Error);
  EXPECT_EQ(File::open(dir.path() / "m.safetensors").read("x").item(), 1.0);
  EXPECT_THAT(message_of([&] { write(dir.path() / "none" / "m.safetensors", {}); }),
              HasSubstr("No such file or directory"));
}

TEST(Safetensors, OnlyFilesOpen) {
  const TemporaryDirectory dir;
  EXPECT_THAT(message_of([&] { (void)File::open(dir.path()); }), HasSubstr("not a regular file"));
  EXPECT_THAT(message_of([&] { (void)File::open(dir.path() / "none"); }),
              HasSubstr("none': No such file or directory"));
}

}  // namespace
}  // namespace steady::safetensors
