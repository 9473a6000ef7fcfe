#pragma once

#include <cstdint>
#include <filesystem>
#include <steadygrad/core/data/dataset.hpp>

namespace steady {

/// How images and labels become a Dataset: x = (pixel / 255 - mean) / deviation.
/// The defaults are mean and standard deviation of MNIST's training images; mean 0 with deviation
/// 1 leaves pixels in [0, 1].
struct MnistOptions {
  std::int64_t classes = 10;  // labels must be in [0, classes)
  double mean = 0.1307;
  double deviation = 0.3081;  // above 0
};

/// The four files of MNIST or of a data set in its form (Fashion-MNIST, KMNIST, EMNIST).
struct MnistFiles {
  std::filesystem::path train_images;
  std::filesystem::path train_labels;
  std::filesystem::path test_images;
  std::filesystem::path test_labels;
};

/// Finds train-images, train-labels, t10k-images and t10k-labels in `directory` or one directory
/// down, spelled "-idx3-ubyte" or ".idx3-ubyte" (idx1 for labels), plain or ".gz". Throws IoError
/// that lists every name tried.
[[nodiscard]] MnistFiles find_mnist(const std::filesystem::path& directory);
/// Whether at least one of the four files is there: then a program should use them or fail.
[[nodiscard]] bool has_mnist(const std::filesystem::path& directory);

/// Reads images [N, H, W] and labels [N], both unsigned bytes, into x: f32 [N, H, W, 1] and
/// y: i64 [N]; sizes come from the file. Throws IoError naming both files when the counts differ,
/// and naming the label, its position and the class count when a label is out of range.
[[nodiscard]] Dataset load_images(const std::filesystem::path& images,
                                  const std::filesystem::path& labels,
                                  const MnistOptions& options = {});

/// Both parts of the set that find_mnist finds.
[[nodiscard]] TrainTest load_mnist(const std::filesystem::path& directory,
                                   const MnistOptions& options = {});

}  // namespace steady
