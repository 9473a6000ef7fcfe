#pragma once

#include <cstdint>
#include <filesystem>
#include <steadygrad/core/data/vocabulary.hpp>
#include <steadygrad/core/tensor.hpp>
#include <string_view>

namespace steady {

/// How a text becomes training and validation data.
struct TextOptions {
  TextUnit unit = TextUnit::Character;
  double validation = 0.1;     ///< share of the tokens, taken from the end; in (0, 1)
  std::int64_t context = 128;  ///< longest window that will be asked for, at least 1
};

/// A text as numbers, in two parts that follow each other; the vocabulary is that of both.
struct Text {
  Vocabulary vocabulary;
  Tensor train;       // i64 [tokens]
  Tensor validation;  // i64 [tokens]
};

/// Numbers the tokens of `text` and splits them: the first round((1 - validation) * N) train.
/// A window of T tokens with the targets one further needs T + 1: throws ShapeError naming the part
/// when the whole text or one of its parts is shorter than context + 1; Error for options out of
/// range; IoError naming `source` and the byte offset for text that is not UTF-8.
[[nodiscard]] Text make_text(std::string_view text, const TextOptions& options = {},
                             std::string_view source = "text");

/// The same of a file; throws IoError when it cannot be read.
[[nodiscard]] Text load_text(const std::filesystem::path& path, const TextOptions& options = {});

}  // namespace steady
