#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

// The direction of dependencies, read from the #include lines:
//   layers, optim -> core, and no edge between layers and optim
//   ops -> tape, kernels;  tape -> tensor -> storage -> shape, dtype -> error
//   kernels -> error, shape, dtype, parallel and the library they wrap

namespace {

using Tree = std::map<std::string, std::string>;  // path from the top -> text
using Strings = std::vector<std::string>;

struct Rule {
  std::string_view part;
  std::set<std::string_view> may_include;  // itself always
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> table = {
      {"error", {}},
      {"base", {"error"}},
      {"storage", {"error", "base"}},
      {"random", {"error", "base"}},
      {"tensor", {"error", "base", "storage", "random"}},
      {"kernels", {"error", "base"}},
      {"tape", {"error", "base", "storage", "random", "tensor", "kernels"}},
      {"ops", {"error", "base", "storage", "random", "tensor", "kernels", "tape"}},
      {"gradcheck", {"error", "base", "storage", "random", "tensor", "kernels", "tape", "ops"}},
      {"report", {"error", "base", "kernels"}},
      {"io", {"error", "base", "storage", "random", "tensor", "report"}},
      {"data", {"error", "base", "storage", "random", "tensor", "io"}},
      {"distributed", {"error", "base", "storage", "random", "tensor", "kernels", "tape", "io"}},
      {"norm kernels", {"error", "base", "kernels"}},
      {"layers",
       {"error", "base", "storage", "random", "tensor", "kernels", "tape", "ops", "gradcheck", "io",
        "data", "distributed", "norm kernels"}},
      {"optim",
       {"error", "base", "storage", "random", "tensor", "kernels", "tape", "ops", "gradcheck", "io",
        "data"}},
  };
  return table;
}

bool starts_with_any(std::string_view text, const std::vector<std::string_view>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) {
    return text.substr(0, prefix.size()) == prefix;
  });
}

bool is_norm_kernel(std::string_view path) {
  return starts_with_any(path, {"layers/norm/"}) &&
         (path.find("_kernel.") != path.npos || path.find("_stats.") != path.npos ||
          path.find("_plan.") != path.npos || path.find("_double_backward.") != path.npos ||
          path.find("-inl.") != path.npos);
}

/// The part of the tree that owns `path`; a new file of core's top level counts as the tape's
/// neighbour. Empty: outside the library.
std::string_view part_of(std::string_view path) {
  static const std::vector<std::pair<std::string_view, std::string_view>> prefixes = {
      {"core/error.", "error"},
      {"core/dtype.", "base"},
      {"core/shape.", "base"},
      {"core/parallel.", "base"},
      {"core/node_pool.", "storage"},
      {"core/storage.", "storage"},
      {"core/system_memory.", "storage"},
      {"core/random.", "random"},
      {"core/tensor.", "tensor"},
      {"core/parameter.", "tensor"},
      {"core/gradcheck", "gradcheck"},
      {"core/library_report.", "report"},
      {"version.", "report"},
      {"core/kernels/", "kernels"},
      {"core/ops/", "ops"},
      {"core/io/", "io"},
      {"core/data/", "data"},
      {"core/distributed/", "distributed"},
      {"core/", "tape"},
      {"optim/", "optim"}};
  if (starts_with_any(path, {"layers/"})) return is_norm_kernel(path) ? "norm kernels" : "layers";
  for (const auto& [prefix, part] : prefixes) {
    if (starts_with_any(path, {prefix})) return part;
  }
  return {};
}

/// What stands between <> or "" in the #include lines of `text`.
Strings includes_of(const std::string& text) {
  Strings result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line.erase(
        std::remove_if(line.begin(), line.end(), [](char c) { return c == ' ' || c == '\t'; }),
        line.end());
    if (line.rfind("#include", 0) != 0 || line.size() < 10) continue;
    const std::size_t end = line.find(line[8] == '<' ? '>' : '"', 9);
    if (end != line.npos) result.push_back(line.substr(9, end - 9));
  }
  return result;
}

bool is_public_header(std::string_view path) {
  return path.size() > 4 && path.substr(path.size() - 4) == ".hpp" && part_of(path) != "kernels" &&
         path.find("_kernel.") == path.npos && path.find("-inl.") == path.npos;
}

bool is_standard_or_fmt(std::string_view header) {
  return header.find_first_of("./") == header.npos || starts_with_any(header, {"fmt/"});
}

void check_edge(const std::string& path, const std::string& header, Strings& faults) {
  const std::string target = header.substr(std::string_view("steadygrad/").size());
  const std::string_view from = part_of(path);
  const std::string_view to = part_of(target);
  const auto rule =
      std::find_if(rules().begin(), rules().end(), [&](const Rule& r) { return r.part == from; });
  if (from != to && rule->may_include.count(to) == 0) {
    faults.push_back(path + " (" + std::string(from) + ") may not include " + target);
  }
}

/// Every breach of the rules in the library's part of `tree`.
Strings include_faults(const Tree& tree) {
  static const std::set<std::string> wrapped = {"cblas.h", "dnnl.hpp", "hdf5.h", "mpi.h", "zlib.h"};
  Strings faults;
  std::map<std::string, Strings> users;
  for (const auto& [path, text] : tree) {
    if (part_of(path).empty()) continue;
    for (const std::string& header : includes_of(text)) {
      if (starts_with_any(header, {"steadygrad/"})) {
        check_edge(path, header, faults);
      } else if (starts_with_any(header, {"core/", "layers/", "optim/", "examples/", "tests/"})) {
        faults.push_back(path + " spells " + header + " without steadygrad/");
      } else if (is_public_header(path) && !is_standard_or_fmt(header)) {
        faults.push_back(path + " is public and includes " + header);
      }
      if (wrapped.count(header) != 0) users[header].push_back(path);
    }
  }
  for (const auto& [header, paths] : users) {
    if (paths.size() > 1)
      faults.push_back(header + " is included by " + paths[0] + " and " + paths[1]);
    for (const std::string& path : paths) {
      if (path.substr(path.size() - 4) != ".cpp") faults.push_back(header + " in header " + path);
    }
  }
  return faults;
}

/// Build files that relax floating point.
Strings flag_faults(const Tree& tree) {
  Strings faults;
  for (const auto& [path, text] : tree) {
    for (const char* flag : {"-ffast-math", "-Ofast", "-funsafe-math", "-ffinite-math"}) {
      if (text.find(flag) != text.npos) faults.push_back(path + " has " + flag);
    }
  }
  return faults;
}

Tree read_tree(const std::vector<std::string>& places, const std::set<std::string>& endings) {
  const std::filesystem::path top = STEADY_SOURCE_DIR;
  Tree tree;
  const auto add = [&](const std::filesystem::path& file) {
    const std::string ending =
        file.filename() == "CMakeLists.txt" ? "CMakeLists.txt" : file.extension().string();
    if (endings.count(ending) == 0) return;
    std::ifstream in(file, std::ios::binary);
    tree[std::filesystem::relative(file, top).generic_string()] =
        std::string(std::istreambuf_iterator<char>(in), {});
  };
  for (const std::string& place : places) {
    if (!std::filesystem::is_directory(top / place)) {
      add(top / place);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(top / place)) {
      if (entry.is_regular_file()) add(entry.path());
    }
  }
  return tree;
}

Tree library() { return read_tree({"core", "layers", "optim"}, {".hpp", ".cpp", ".h", ".inc"}); }

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST(Structure, NoIncludePointsBack) {
  const Tree tree = library();
  EXPECT_GE(tree.size(), 8U);
  EXPECT_THAT(include_faults(tree), IsEmpty());
}

TEST(Structure, BuildFilesKeepExactFloatingPoint) {
  const Tree tree =
      read_tree({"CMakeLists.txt", "core", "layers", "optim", "examples", "tests", "bench"},
                {"CMakeLists.txt", ".cmake"});
  EXPECT_GE(tree.size(), 4U);
  EXPECT_THAT(flag_faults(tree), IsEmpty());
  EXPECT_THAT(flag_faults({{"a.cmake", "add_compile_options(-O2 -ffast-math)"}}),
              ElementsAre("a.cmake has -ffast-math"));
}

// The checker itself must be able to fail: one seeded fault each, found with its name.
TEST(Structure, CheckerFindsEverySeededFault) {
  const auto fault = [](const char* path, const char* header) {
    return include_faults({{path, std::string("  #  include <") + header + ">\n"}});
  };
  EXPECT_THAT(fault("core/ops/matmul.cpp", "steadygrad/layers/linear.hpp"),
              ElementsAre("core/ops/matmul.cpp (ops) may not include layers/linear.hpp"));
  EXPECT_THAT(fault("core/tensor.hpp", "steadygrad/core/tape.hpp"), SizeIs(1));
  EXPECT_THAT(fault("core/storage.cpp", "steadygrad/core/tensor.hpp"), SizeIs(1));
  EXPECT_THAT(fault("core/tape.cpp", "steadygrad/core/ops/reduce.hpp"), SizeIs(1));
  EXPECT_THAT(fault("core/kernels/gemm.hpp", "steadygrad/core/tensor.hpp"), SizeIs(1));
  EXPECT_THAT(fault("core/error.hpp", "steadygrad/core/shape.hpp"), SizeIs(1));
  EXPECT_THAT(fault("core/data/idx.cpp", "steadygrad/core/tape.hpp"), SizeIs(1));
  EXPECT_THAT(fault("core/shape.cpp", "steadygrad/steadygrad.hpp"), SizeIs(1));
  EXPECT_THAT(fault("layers/module.hpp", "steadygrad/optim/sgd.hpp"), SizeIs(1));
  EXPECT_THAT(fault("optim/sgd.cpp", "steadygrad/layers/module.hpp"), SizeIs(1));
  EXPECT_THAT(fault("layers/norm/rms_norm_kernel.cpp", "steadygrad/core/tensor.hpp"), SizeIs(1));
  EXPECT_THAT(fault("core/tape.cpp", "core/tensor.hpp"), SizeIs(1));
  EXPECT_THAT(fault("core/random.hpp", "immintrin.h"),
              ElementsAre("core/random.hpp is public and includes immintrin.h"));
  EXPECT_THAT(fault("core/kernels/gemm.hpp", "cblas.h"),
              ElementsAre("cblas.h in header core/kernels/gemm.hpp"));
  EXPECT_THAT(include_faults({{"core/kernels/a.cpp", "#include <dnnl.hpp>"},
                              {"core/kernels/b.cpp", "#include <dnnl.hpp>"}}),
              ElementsAre("dnnl.hpp is included by core/kernels/a.cpp and core/kernels/b.cpp"));
}

TEST(Structure, CheckerAcceptsTheAllowedEdges) {
  EXPECT_THAT(
      include_faults({
          {"core/tape.cpp", "#include <steadygrad/core/kernels/accumulate.hpp>"},
          {"core/ops/pool.cpp", "#include <steadygrad/core/tape.hpp>"},
          {"core/data/mnist.cpp", "#include <steadygrad/core/io/gzip.hpp>"},
          {"core/kernels/gemm.cpp", "#include <cblas.h>\n#include <hwy/highway.h>"},
          {"layers/linear.hpp", "#include <steadygrad/core/ops/matmul.hpp>\n#include <map>"},
          {"optim/sgd.hpp", "#include <fmt/core.h>"},
          {"tests/any_test.cpp", "#include <hdf5.h>"},
      }),
      IsEmpty());
}

}  // namespace
