#pragma once

#include <cstdint>
#include <steadygrad/core/data/dataset.hpp>
#include <string>

namespace steady::examples {

struct DigitOptions {
  std::string directory = "data";  // where MNIST may lie, see find_mnist
  bool required = false;           // true: no MNIST there is an IoError
  std::int64_t limit = 0;          // most images of each part; 0: all
};

/// Images of digits for training and test, and a sentence for the user that says what they are.
struct Digits {
  TrainTest data;
  std::string source;
  bool generated = false;
};

/// MNIST when at least one of its files is in the directory (then all four must be there and
/// sound), else the generated set of the same form.
/// Throws IoError as load_mnist does, and Error for a negative limit.
[[nodiscard]] Digits load_digits(const DigitOptions& options = {});

}  // namespace steady::examples
