// What the README shows is what the tree holds.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <steadygrad/layers/norm/norm_kinds.hpp>
#include <string>

namespace {

std::string read(const std::string& path) {
  std::ifstream file(STEADY_SOURCE_DIR "/" + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Readme, ProgramIsTheExampleThatIsBuilt) {
  const std::string readme = read("README.md");
  const std::size_t begin = readme.find("```cpp\n");
  ASSERT_NE(begin, std::string::npos);
  const std::size_t code = begin + 7;
  const std::string shown = readme.substr(code, readme.find("```", code) - code);
  const std::string built = read("examples/first_cnn.cpp");
  EXPECT_EQ(shown, built.substr(built.find("#include")));
}

TEST(Readme, FilesItNamesExist) {
  const std::string readme = read("README.md");
  for (std::size_t at = readme.find("]("); at != std::string::npos;
       at = readme.find("](", at + 1)) {
    const std::string target = readme.substr(at + 2, readme.find(')', at) - at - 2);
    if (target.starts_with("http") || target.starts_with("#")) continue;
    EXPECT_TRUE(std::filesystem::exists(STEADY_SOURCE_DIR "/" + target)) << target;
  }
}

TEST(Readme, EveryNormHasAPageInTheIndexAndAGrammarInTheHeader) {
  const std::string index = read("layers/norm/docs/README.md");
  const std::string header = read("layers/norm/norm_spec.hpp");
  for (const steady::detail::NormKind& kind : steady::detail::norm_kinds()) {
    const std::string grammar = kind.grammar;
    const std::string name = grammar.substr(0, grammar.find('('));
    if (name == "none") continue;
    EXPECT_NE(index.find("](" + name + ".md)"), std::string::npos) << name;
    EXPECT_FALSE(read("layers/norm/docs/" + name + ".md").empty()) << name;
    EXPECT_NE(header.find("///   " + name + "("), std::string::npos) << name;
  }
}

}  // namespace
