#include "examples/common/digits.hpp"

#include <algorithm>
#include <steadygrad/core/data/glyphs.hpp>
#include <steadygrad/core/data/mnist.hpp>
#include <steadygrad/core/error.hpp>

namespace steady::examples {

Digits load_digits(const DigitOptions& options) {
  STEADY_CHECK(Error, options.limit >= 0, "load_digits: limit must not be negative; got {}",
               options.limit);
  Digits digits;
  digits.generated = !options.required && !has_mnist(options.directory);
  if (digits.generated) {
    GlyphOptions glyphs;
    if (options.limit > 0) {
      glyphs.train = std::min(glyphs.train, options.limit);
      glyphs.test = std::min(glyphs.test, options.limit);
    }
    digits.data = make_glyphs(glyphs);
  } else {
    digits.data = load_mnist(options.directory);
    if (options.limit > 0) {
      digits.data = {digits.data.train.first(options.limit), digits.data.test.first(options.limit)};
    }
  }
  const std::string what =
      digits.generated
          ? fmt::format("generated digits, for want of MNIST in '{}' (examples/data.sh brings it)",
                        options.directory)
          : fmt::format("MNIST from '{}'", options.directory);
  digits.source = fmt::format("{}: {} training and {} test images", what, digits.data.train.size(),
                              digits.data.test.size());
  return digits;
}

}  // namespace steady::examples
