#pragma once

#include <cstdint>
#include <optional>
#include <steadygrad/core/data/text.hpp>
#include <string>

namespace steady::examples {

struct TextSourceOptions {
  std::string file{};              // of --text; empty: see load_text_source
  std::string directory = "data";  // where a known text may lie
  TextOptions text{};
  std::int64_t generated = 500'000;  // characters of the text that is generated for want of one
};

/// A text for training and validation, and a sentence for the user that says what it is.
struct TextSource {
  Text text;
  std::string source;
  /// Of a generated text: the least loss, in nats per character.
  std::optional<double> entropy;
};

/// The named file; without a name tiny_shakespeare.txt or moby_dick.txt in the directory, else a
/// generated text of known entropy. Throws as load_text.
[[nodiscard]] TextSource load_text_source(const TextSourceOptions& options = {});

}  // namespace steady::examples
