// Models in one or several files.
#include <steadygrad/core/io/safetensors_checkpoint.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <steadygrad/core/error.hpp>
#include <string>

#include "tests/core/io/safetensors_testing.hpp"
#include "tests/support/message_of.hpp"

namespace steady::safetensors {
namespace {

using test::TemporaryDirectory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::message_of;

void put(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Two shards with tensors a, b and c, and the index in `text`.
void put_model(const TemporaryDirectory& dir, const std::string& text) {
  const std::vector<Stored> first{{"a", Tensor::full({2}, 1.0)}, {"c", Tensor::full({2}, 3.0)}};
  const std::vector<Stored> second{{"b", Tensor::full({2}, 2.0)}};
  write(dir.path() / "1.safetensors", first);
  write(dir.path() / "2.safetensors", second, {{"tied", "b"}});
  put(dir.path() / "model.safetensors.index.json", text);
}

constexpr const char* Index =
    R"({"metadata": {"total_size": 24, "more": [1, {"x": null}]},
        "weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"}})";

std::string refusal(const TemporaryDirectory& dir) {
  return message_of([&] { (void)Checkpoint::open(dir.path()); });
}

TEST(SafetensorsCheckpoint, ShardsReadAsOneModel) {
  const TemporaryDirectory dir;
  put_model(dir, Index);
  const Checkpoint model = Checkpoint::open(dir.path());
  EXPECT_THAT(model.names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(model.files().size(), 2U);
  EXPECT_EQ(model.read("a").data<float>()[1], 1.0F);
  EXPECT_EQ(model.read("b", Dtype::F64).data<double>()[0], 2.0);
  EXPECT_EQ(model.at("c").numel(), 2);
  EXPECT_EQ(model.find("d"), nullptr);
  EXPECT_THAT(model.aliases(), ElementsAre(std::pair<std::string, std::string>("tied", "b")));
  EXPECT_EQ(model.folder(), dir.path());
  EXPECT_THAT(message_of([&] { (void)model.read("d"); }), HasSubstr("'d' of"));
}

TEST(SafetensorsCheckpoint, FolderStandsForItsModel) {
  const TemporaryDirectory dir;
  EXPECT_THAT(refusal(dir), HasSubstr("has 0 files that end in .safetensors"));
  const std::vector<Stored> one{{"x", Tensor::ones({1})}};
  write(dir.path() / "weights.safetensors", one);
  EXPECT_THAT(Checkpoint::open(dir.path()).names(), ElementsAre("x"));
  write(dir.path() / "other.safetensors", one);
  EXPECT_THAT(refusal(dir), HasSubstr("has 2 files that end in .safetensors"));
  EXPECT_THAT(Checkpoint::open(dir.path() / "other.safetensors").names(), ElementsAre("x"));
  put_model(dir, Index);
  EXPECT_THAT(Checkpoint::open(dir.path()).names(), ElementsAre("a", "b", "c"));
  write(dir.path() / "model.safetensors", one);
  EXPECT_THAT(Checkpoint::open(dir.path()).names(), ElementsAre("x"));
}

TEST(SafetensorsCheckpoint, FilesThatAreMissingAreNamedTogether) {
  const TemporaryDirectory dir;
  put_model(dir, R"({"weight_map": {"a": "x.safetensors", "b": "y.safetensors",
                                    "c": "1.safetensors"}})");
  EXPECT_THAT(refusal(dir), AllOf(HasSubstr("index.json' names files that are not there: "
                                            "x.safetensors; y.safetensors")));
}

TEST(SafetensorsCheckpoint, IndexAndFilesMustAgree) {
  const TemporaryDirectory dir;
  put_model(dir, R"({"weight_map": {"a": "1.safetensors", "b": "1.safetensors",
                                    "c": "1.safetensors"}})");
  EXPECT_THAT(refusal(dir), AllOf(HasSubstr("1.safetensors' lacks"), HasSubstr("there: b")));
  put_model(dir, R"({"weight_map": {"a": "1.safetensors"}})");
  EXPECT_THAT(refusal(dir), AllOf(HasSubstr("does not put there: c")));
}

TEST(SafetensorsCheckpoint, IndexLeadsNowhereElse) {
  for (const char* name :
       {"../1.safetensors", "/etc/1.safetensors", "a/1.safetensors", "..\\\\1.safetensors",
        ".safetensors", "..safetensors", "", "1.bin", "1.safetensors\\u0000", "1\\n.safetensors"}) {
    const std::string text = std::string(R"({"weight_map": {"a": ")") + name + "\"}}";
    EXPECT_THAT(message_of([&] { (void)read_index(text, "i.json"); }),
                HasSubstr("'i.json': the file of 'a' must be a plain name in this folder"))
        << name;
  }
}

TEST(SafetensorsCheckpoint, IndexIsNotTrusted) {
  const auto index = [](const std::string& text) {
    return message_of([&] { (void)read_index(text, "i.json"); });
  };
  EXPECT_THAT(index(""), HasSubstr("invalid JSON"));
  EXPECT_THAT(index("[]"), HasSubstr("not a JSON object; it is a list"));
  EXPECT_THAT(index("1"), HasSubstr("not a JSON object"));
  EXPECT_THAT(index("{}"), HasSubstr("there is no weight_map"));
  EXPECT_THAT(index(R"({"x": {"weight_map": {}}})"), HasSubstr("there is no weight_map"));
  EXPECT_THAT(index(R"({"weight_map": 1})"), HasSubstr("weight_map is not an object"));
  EXPECT_THAT(index(R"({"weight_map": []})"), HasSubstr("weight_map is not an object"));
  EXPECT_THAT(index(R"({"weight_map": {"a": 1}})"), HasSubstr("the file of 'a' is a number"));
  EXPECT_THAT(index(R"({"weight_map": {"a": {}}})"), HasSubstr("the file of 'a' is an object"));
  EXPECT_THAT(index(R"({"weight_map": {"a": []}})"), HasSubstr("the file of 'a' is a list"));
  EXPECT_THAT(index(R"({"weight_map": {"a": "1.safetensors", "a": "1.safetensors"}})"),
              HasSubstr("duplicate key; 'a'"));
  EXPECT_THAT(index(R"({"weight_map": {}, "weight_map": {}})"),
              HasSubstr("'weight_map' comes twice"));
  EXPECT_THAT(index(R"({"x": )" + std::string(100'000, '[')),
              HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(index(R"({"weight_map": {}} x)"), HasSubstr("invalid JSON"));
  EXPECT_EQ(index(R"({"weight_map": {}})"), "no exception");
}

}  // namespace
}  // namespace steady::safetensors
