#include "examples/common/text_source.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <steadygrad/core/error.hpp>
#include <string>

#include "tests/core/data/files.hpp"

namespace steady::examples {
namespace {

using test::TemporaryDirectory;
using testing::AllOf;
using testing::HasSubstr;

void write(const TemporaryDirectory& directory, const std::string& name, const std::string& text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  directory.write(name, test::Bytes(bytes, bytes + text.size()));
}

TEST(TextSource, AKnownTextComesBeforeTheGeneratedOne) {
  const TemporaryDirectory directory;
  TextSourceOptions options{.directory = directory.path().string(),
                            .text = {.validation = 0.5, .context = 2},
                            .generated = 1000};
  const TextSource generated = load_text_source(options);
  ASSERT_TRUE(generated.entropy.has_value());
  EXPECT_THAT(generated.source,
              AllOf(HasSubstr("generated text"), HasSubstr("500 for training and 500 for")));
  write(directory, "moby_dick.txt", "call me");
  const TextSource whale = load_text_source(options);
  EXPECT_FALSE(whale.entropy.has_value());
  EXPECT_THAT(whale.source, AllOf(HasSubstr("moby_dick.txt'"), HasSubstr("6 different char")));
  write(directory, "tiny_shakespeare.txt", "before we proceed");
  EXPECT_THAT(load_text_source(options).source, HasSubstr("tiny_shakespeare.txt'"));
}

TEST(TextSource, ANamedFileIsUsedOrIsAnError) {
  const TemporaryDirectory directory;
  write(directory, "own.txt", "my own text");
  TextSourceOptions options{.file = (directory.path() / "own.txt").string(),
                            .text = {.unit = TextUnit::Byte, .validation = 0.4, .context = 2}};
  EXPECT_THAT(load_text_source(options).source,
              AllOf(HasSubstr("own.txt"), HasSubstr("256 different bytes")));
  options.file += ".gone";
  EXPECT_THROW((void)load_text_source(options), IoError);
}

}  // namespace
}  // namespace steady::examples
