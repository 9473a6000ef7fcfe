#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/hdf5.hpp>
#include <steadygrad/core/io/replace_file.hpp>
#include <string>
#include <thread>

#include "tests/core/data/files.hpp"
#include "tests/support/message_of.hpp"

namespace steady {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::message_of;

const std::vector<std::string>& odd_names() {
  static const std::vector<std::string> names = {"",      ".",
                                                 "..",    "...",
                                                 "a.b",   "layers.0.norm1",
                                                 "a/b",   "/",
                                                 "//",    "%",
                                                 "%2F",   "%25",
                                                 "a%2Fb", "%2E",
                                                 "%2E.",  "%00",
                                                 "%%",    "é ü",
                                                 "a b",   std::string("\0", 1)};
  return names;
}

/// A file on disk from what `fill` puts into its root.
std::filesystem::path saved(const test::TemporaryDirectory& directory,
                            const std::function<void(const hdf5::Group&)>& fill) {
  const std::filesystem::path path = directory.path() / "file.h5";
  const hdf5::File file = hdf5::File::create_in_memory(path.string());
  fill(file.root());
  replace_file(path, file.image());
  return path;
}

TEST(Hdf5, EscapedNamesAreDifferentLinksAndComeBack) {
  std::set<std::string> links;
  for (const std::string& name : odd_names()) {
    const std::string link = hdf5::escape(name);
    EXPECT_EQ(link.find('/'), std::string::npos);
    EXPECT_NE(link.find_first_not_of('.'), std::string::npos);
    EXPECT_EQ(hdf5::unescape(link), name);
    links.insert(link);
  }
  EXPECT_EQ(links.size(), odd_names().size());
  EXPECT_EQ(hdf5::escape("layers.0.norm1"), "layers.0.norm1");
}

TEST(Hdf5, NamesOfGroupsTablesAndAttributesMayHoldAnything) {
  const test::TemporaryDirectory directory;
  const auto path = saved(directory, [](const hdf5::Group& root) {
    for (const std::string& name : odd_names()) {
      (void)root.group("groups", true).group(name, true).group(name, true);
      (void)root.group("tables", true).create_table(name, {{.name = "x"}});
      root.set_attribute(name, name);
    }
  });
  const hdf5::Group root = hdf5::File::open(path).root();
  EXPECT_THAT(root.group("groups").groups(), testing::UnorderedElementsAreArray(odd_names()));
  EXPECT_THAT(root.group("tables").datasets(), testing::UnorderedElementsAreArray(odd_names()));
  EXPECT_THAT(root.group("tables").groups(), IsEmpty());
  const hdf5::Attributes attributes = root.attributes();
  ASSERT_EQ(attributes.size(), odd_names().size());
  for (std::size_t i = 0; i < attributes.size(); ++i) {
    EXPECT_EQ(attributes[i].first, odd_names()[i]);
  }
}

TEST(Hdf5, AttributesKeepTheirKindAndOrder) {
  const test::TemporaryDirectory directory;
  const hdf5::Attributes given = {{"seed", ~std::uint64_t{0}},
                                  {"step", std::int64_t{-3}},
                                  {"lr", 0.1},
                                  {"text", "two\nlines é"},
                                  {"empty", ""}};
  const auto path = saved(directory, [&](const hdf5::Group& root) {
    for (const auto& [name, value] : given) root.set_attribute(name, value);
  });
  EXPECT_EQ(hdf5::File::open(path).root().attributes(), given);
  const auto replaced = saved(directory, [&](const hdf5::Group& root) {
    root.set_attribute("x", 1.0);
    root.set_attribute("x", "now a text");
  });
  EXPECT_EQ(hdf5::File::open(replaced).root().attributes(),
            (hdf5::Attributes{{"x", "now a text"}}));
  EXPECT_EQ(hdf5::to_string(given[2].second), "0.1");
}

TEST(Hdf5, TablesGrow) {
  const test::TemporaryDirectory directory;
  const std::vector<hdf5::Column> columns = {{"step", hdf5::Column::Kind::I64, 1},
                                             {"x", hdf5::Column::Kind::F64, 1},
                                             {"counts", hdf5::Column::Kind::I64, 3}};
  std::vector<std::uint64_t> all;
  const auto path = saved(directory, [&](const hdf5::Group& root) {
    hdf5::Table table = root.create_table("t", columns);
    for (std::uint64_t row = 0; row < 300; ++row) {
      const std::vector<std::uint64_t> words = {
          row, std::bit_cast<std::uint64_t>(0.5 * double(row)), 1, 2, row};
      table.append(words);
      all.insert(all.end(), words.begin(), words.end());
    }
    table.append({});
  });
  const hdf5::Table table = hdf5::File::open(path).root().open_table("t");
  EXPECT_EQ(table.columns(), columns);
  EXPECT_EQ(table.rows(), 300);
  EXPECT_EQ(table.read(), all);
}

TEST(Hdf5, TensorsOfEveryDtypeComeBack) {
  const test::TemporaryDirectory directory;
  const auto path = saved(directory, [](const hdf5::Group& root) {
    for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::I32, Dtype::I64}) {
      root.write(to_string(dtype), Tensor::of({2, 3}, {1, -2, 3, 4, 5, 6}, dtype));
    }
    root.write("scalar", Tensor::scalar(7));
    root.write("empty", Tensor::empty({0, 4}));
  });
  const hdf5::Group root = hdf5::File::open(path).root();
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::I32, Dtype::I64}) {
    const Tensor t = root.read(to_string(dtype));
    EXPECT_EQ(describe(t), std::string(to_string(dtype)) + " [2, 3]");
    const Tensor wide = t.detached_copy(Dtype::F64);
    EXPECT_THAT(std::vector<double>(wide.data<double>().begin(), wide.data<double>().end()),
                ElementsAre(1, -2, 3, 4, 5, 6));
  }
  EXPECT_EQ(root.read("scalar").item(), 7);
  EXPECT_EQ(root.read("empty").shape(), (Shape{0, 4}));
}

TEST(Hdf5, ErrorsNameFileAndObject) {
  const test::TemporaryDirectory directory;
  const auto path = saved(
      directory, [](const hdf5::Group& root) { (void)root.create_table("t", {{.name = "x"}}); });
  const hdf5::Group root = hdf5::File::open(path).root();
  const std::string name = path.string();
  EXPECT_THAT(message_of([&] { (void)root.group("norm/1"); }),
              HasSubstr("hdf5: cannot open " + name + ":/norm%2F1: "));
  EXPECT_THAT(message_of([&] { (void)root.open_table("u"); }), HasSubstr(name + ":/u"));
  EXPECT_THAT(message_of([&] { (void)root.read("t"); }),
              HasSubstr(name + ":/t: its numbers are of no dtype"));
  EXPECT_THAT(message_of([&] { root.set_attribute("x", 1.0); }),
              HasSubstr("attribute 'x' of " + name));
  hdf5::Table table =
      hdf5::File::create_in_memory("m").root().create_table("t", {{.name = "x"}, {.name = "y"}});
  EXPECT_THAT(message_of([&] { table.append(std::vector<std::uint64_t>(3)); }),
              HasSubstr("m:/t: 3 words are no multiple of 2"));
}

TEST(Hdf5, ThreadsTakeTurns) {
  const hdf5::File file = hdf5::File::create_in_memory("shared");
  const auto work = [&](const std::string& name) {
    hdf5::Table table = file.root().group(name, true).create_table("t", {{.name = "x"}});
    for (std::uint64_t i = 0; i < 200; ++i) table.append(std::vector{i});
  };
  std::thread other([&] { work("other"); });
  work("this");
  other.join();
  EXPECT_EQ(file.root().group("other").open_table("t").rows(), 200);
  EXPECT_EQ(file.root().group("this").open_table("t").rows(), 200);
}

TEST(ReplaceFile, ReplacesTheWholeFileAndLeavesNothingBeside) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "x";
  replace_file(path, test::Bytes(100, std::byte{1}));
  replace_file(path, test::Bytes(3, std::byte{2}));
  EXPECT_EQ(std::filesystem::file_size(path), 3U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(ReplaceFile, SaysWhyItCannot) {
  const test::TemporaryDirectory directory;
  const auto missing = directory.path() / "none" / "x";
  EXPECT_EQ(message_of([&] { replace_file(missing, {}); }),
            "write: cannot create '" + missing.string() + ".part': No such file or directory");
  const auto taken = directory.path() / "taken";
  std::filesystem::create_directories(taken / "full");
  EXPECT_THAT(message_of([&] { replace_file(taken, {}); }),
              HasSubstr("write: cannot replace '" + taken.string() + "': "));
  EXPECT_FALSE(std::filesystem::exists(taken.string() + ".part"));
}

}  // namespace
}  // namespace steady
