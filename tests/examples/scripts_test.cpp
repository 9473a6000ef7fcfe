#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include "tests/core/data/files.hpp"

namespace steady {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// The shell scripts with stand-ins for the tools of the system first in PATH.
struct Scripts : testing::Test {
  test::TemporaryDirectory tools;
  int code = -1;

  void tool(const std::string& name, const std::string& script) {
    const std::string text = "#!/bin/sh\n" + script + "\n";
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    const auto path = tools.write(name, test::Bytes(bytes, bytes + text.size()));
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  /// Runs bash code with the shared functions loaded; returns both output streams.
  std::string shell(const std::string& body) {
    const std::string command = "cd '" STEADY_SOURCE_DIR "' && PATH='" + tools.path().string() +
                                "':\"$PATH\" bash -c 'set -euo pipefail; "
                                "source examples/common/setup.sh; " +
                                body + "' </dev/null 2>&1";
    std::FILE* pipe = popen(command.c_str(), "r");
    std::string output;
    std::array<char, 4096> buffer;
    for (std::size_t n = 1; n > 0; output.append(buffer.data(), n)) {
      n = std::fread(buffer.data(), 1, buffer.size(), pipe);
    }
    const int status = pclose(pipe);
    code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return output;
  }
};

TEST_F(Scripts, MissingPackagesWithoutTheRightToInstallAreNamedInOneLine) {
  tool("dpkg-query", "echo 'installed g++'; echo 'installed libopenblas-serial-dev'; exit 1");
  tool("id", "echo 1000");
  tool("sudo", "exit 1");
  const std::string text = shell("steady_install \"${steady_packages[@]}\"; echo went on");
  EXPECT_EQ(code, 1);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_THAT(
      text, AllOf(HasSubstr("apt-get install cmake ninja-build"), HasSubstr("libdnnl-dev"),
                  EndsWith("gnuplot-nox\n"), Not(HasSubstr("g++")), Not(HasSubstr("libopenblas"))));
}

TEST_F(Scripts, NothingIsInstalledWhenNothingIsMissing) {
  tool("dpkg-query", "for p in \"$@\"; do echo \"installed $p\"; done");
  tool("apt-get", "echo apt-get was called");
  tool("sudo", "echo sudo was called");
  EXPECT_THAT(shell("steady_install \"${steady_packages[@]}\""), IsEmpty());
  EXPECT_EQ(code, 0);
}

TEST_F(Scripts, RootInstallsWhatIsMissingAndSaysSoFirst) {
  tool("dpkg-query", "exit 1");
  tool("id", "echo 0");
  tool("apt-get", "echo \"called $*\" >&2");
  const std::string text = shell("steady_install zlib1g-dev \"ninja-build|make\"");
  EXPECT_EQ(code, 0);
  EXPECT_LT(text.find("installing with apt-get: zlib1g-dev ninja-build"),
            text.find("called update"));
  EXPECT_THAT(text, HasSubstr("zlib1g-dev ninja-build\n"));
  tool("apt-get", "exit 100");
  EXPECT_THAT(shell("steady_install zlib1g-dev; echo went on"),
              AllOf(HasSubstr("by hand: apt-get install zlib1g-dev"), Not(HasSubstr("went on"))));
  EXPECT_EQ(code, 1);
}

TEST_F(Scripts, AnUnknownProgramOrDataSetIsOneLineAndExitCode2) {
  EXPECT_THAT(shell("exec examples/run.sh no_such_program"), HasSubstr("no_such_program"));
  EXPECT_EQ(code, 2);
  EXPECT_THAT(shell("exec examples/data.sh no_such_set"), HasSubstr("no_such_set"));
  EXPECT_EQ(code, 2);
}

/// data.sh in a tree of its own, with the SHA-256 of "hello" in place of tiny Shakespeare's.
struct DataScript : Scripts {
  void SetUp() override {
    std::filesystem::create_directories(tools.path() / "examples");
    const auto copy = tools.path() / "examples" / "data.sh";
    shell(
        "sed s/86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed/"
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824/ examples/data.sh >" +
        copy.string());
    std::filesystem::permissions(copy, std::filesystem::perms::owner_all);
  }
  /// A stand-in for curl that delivers `text`.
  void curl_brings(const std::string& text) {
    tool("curl", "while [ \"$1\" != --output ]; do shift; done; printf '" + text + "' >\"$2\"");
  }
  std::string run(const std::string& arguments) {
    return shell("exec " + (tools.path() / "examples" / "data.sh").string() + " " + arguments);
  }
};

TEST_F(DataScript, BringsATextOnce) {
  curl_brings("hello");
  EXPECT_THAT(run("text"), HasSubstr("text: data/tiny_shakespeare.txt\n"));
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(std::filesystem::is_regular_file(tools.path() / "data" / "tiny_shakespeare.txt"));
  tool("curl", "echo curl was called");
  EXPECT_THAT(run("text"), AllOf(HasSubstr("is there already"), Not(HasSubstr("called"))));
  EXPECT_EQ(code, 0);
}

TEST_F(DataScript, KeepsNoTextWithAnotherChecksum) {
  curl_brings("another text");
  tool("npm", "exit 1");
  EXPECT_THAT(run("text"), AllOf(HasSubstr("wrong SHA-256"), HasSubstr("no text came"),
                                 HasSubstr("train on a generated one")));
  EXPECT_EQ(code, 1);
  EXPECT_TRUE(std::filesystem::is_empty(tools.path() / "data"));
}

TEST_F(DataScript, HelpNamesEverySet) {
  EXPECT_THAT(run("--help"), AllOf(HasSubstr("mnist|text|all"), HasSubstr("tiny Shakespeare"),
                                   Not(HasSubstr("set -"))));
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace steady
