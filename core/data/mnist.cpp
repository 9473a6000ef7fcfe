#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <steadygrad/core/data/idx.hpp>
#include <steadygrad/core/data/mnist.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>
#include <string>
#include <vector>

namespace steady {
namespace {

using Path = std::filesystem::path;

/// `directory` and the directories in it, in the order of their names. Hidden ones are skipped: an
/// interrupted download leaves half a file in one.
std::vector<Path> places(const Path& directory) {
  std::vector<Path> result;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(directory, failure)) {
    const bool hidden = entry.path().filename().string().front() == '.';
    if (!hidden && entry.is_directory(failure)) result.push_back(entry.path());
  }
  std::sort(result.begin(), result.end());
  result.insert(result.begin(), directory);
  return result;
}

std::vector<std::string> spellings(const std::string& stem, int rank) {
  std::vector<std::string> names;
  for (const char* joint : {"-", "."}) {
    for (const char* ending : {"", ".gz"}) {
      names.push_back(fmt::format("{}{}idx{}-ubyte{}", stem, joint, rank, ending));
    }
  }
  return names;
}

struct Wanted {
  const char* stem;
  int rank;
  Path MnistFiles::*member;
};
constexpr std::array<Wanted, 4> FourFiles = {{{"train-images", 3, &MnistFiles::train_images},
                                              {"train-labels", 1, &MnistFiles::train_labels},
                                              {"t10k-images", 3, &MnistFiles::test_images},
                                              {"t10k-labels", 1, &MnistFiles::test_labels}}};

std::optional<Path> find(const std::vector<Path>& where, const std::vector<std::string>& names) {
  std::error_code failure;
  for (const Path& place : where) {
    for (const std::string& name : names) {
      if (std::filesystem::is_regular_file(place / name, failure)) return place / name;
    }
  }
  return std::nullopt;
}

Tensor standardised(const IdxArray& images, const MnistOptions& options) {
  std::array<float, 256> value{};
  for (std::size_t i = 0; i < value.size(); ++i) {
    value[i] =
        static_cast<float>((static_cast<double>(i) / 255.0 - options.mean) / options.deviation);
  }
  Tensor x = Tensor::empty(Shape(images.dims).appended(1));
  const auto to = x.mutable_data<float>("load_images");
  parallel_for(x.numel(), std::int64_t{1} << 16, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      to[i] = value[std::to_integer<std::size_t>(images.bytes[i])];
    }
  });
  return x;
}

void check_unsigned_bytes(const IdxArray& array) {
  STEADY_CHECK(IoError, array.type == IdxType::U8,
               "load_images: '{}' holds elements of type {}; unsigned byte expected", array.path,
               to_string(array.type));
}

}  // namespace

MnistFiles find_mnist(const Path& directory) {
  const std::vector<Path> where = places(directory);
  MnistFiles files;
  std::vector<std::string> missing;
  for (const Wanted& wanted : FourFiles) {
    const std::vector<std::string> names = spellings(wanted.stem, wanted.rank);
    const std::optional<Path> found = find(where, names);
    if (found) {
      files.*wanted.member = *found;
    } else {
      missing.insert(missing.end(), names.begin(), names.end());
    }
  }
  STEADY_CHECK(IoError, missing.empty(),
               "find_mnist: files missing in '{}' and {} directories below it; tried {}",
               directory.string(), where.size() - 1, fmt::join(missing, ", "));
  return files;
}

bool has_mnist(const Path& directory) {
  const std::vector<Path> where = places(directory);
  return std::any_of(FourFiles.begin(), FourFiles.end(), [&](const Wanted& wanted) {
    return find(where, spellings(wanted.stem, wanted.rank)).has_value();
  });
}

Dataset load_images(const Path& images, const Path& labels, const MnistOptions& options) {
  STEADY_CHECK(Error, options.classes >= 1 && options.deviation > 0.0,
               "load_images: needs classes >= 1 and deviation > 0; got {} and {}", options.classes,
               options.deviation);
  const IdxArray pixels = read_idx(images, 3);
  check_unsigned_bytes(pixels);
  const IdxArray classes = read_idx(labels, 1);
  check_unsigned_bytes(classes);
  STEADY_CHECK(IoError, pixels.dims[0] == classes.dims[0],
               "load_images: '{}' holds {} images, but '{}' {} labels", pixels.path, pixels.dims[0],
               classes.path, classes.dims[0]);
  const std::vector<std::int64_t> y = to_int64(classes);
  const auto bad = std::find_if(y.begin(), y.end(),
                                [&](std::int64_t label) { return label >= options.classes; });
  STEADY_CHECK(IoError, bad == y.end(),
               "load_images: '{}' has label {} at position {}; {} classes "
               "allow 0 to {}",
               classes.path, *bad, bad - y.begin(), options.classes, options.classes - 1);
  return {standardised(pixels, options), Tensor::from<std::int64_t>(Shape{pixels.dims[0]}, y)};
}

TrainTest load_mnist(const Path& directory, const MnistOptions& options) {
  const MnistFiles files = find_mnist(directory);
  return {load_images(files.train_images, files.train_labels, options),
          load_images(files.test_images, files.test_labels, options)};
}

}  // namespace steady
