#include <steadygrad/core/data/text.hpp>

#include <cmath>
#include <fstream>
#include <span>
#include <steadygrad/core/data/utf8.hpp>
#include <steadygrad/core/error.hpp>
#include <string>
#include <vector>

namespace steady {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::error_code failure;
  STEADY_CHECK(IoError, std::filesystem::is_regular_file(path, failure),
               "load_text: there is no file '{}'", path.string());
  const auto size = std::filesystem::file_size(path, failure);
  std::ifstream file(path, std::ios::binary);
  std::string text(failure ? 0 : static_cast<std::size_t>(size), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  STEADY_CHECK(IoError, !failure && file && file.gcount() == static_cast<std::streamsize>(size),
               "load_text: cannot read '{}'", path.string());
  return text;
}

void check_part(const char* part, std::string_view source, std::size_t tokens,
                std::int64_t context) {
  STEADY_CHECK(ShapeError, static_cast<std::int64_t>(tokens) > context,
               "make_text: {} of '{}' has {} tokens; context {} needs at least {}", part, source,
               tokens, context, context + 1);
}

}  // namespace

Text make_text(std::string_view text, const TextOptions& options, std::string_view source) {
  STEADY_CHECK(Error, options.context >= 1, "make_text: context must be at least 1; got {}",
               options.context);
  STEADY_CHECK(Error, options.validation > 0.0 && options.validation < 1.0,
               "make_text: validation must be in (0, 1); got {}", options.validation);
  if (options.unit == TextUnit::Character) (void)decode_utf8(text, source);
  Vocabulary vocabulary =
      options.unit == TextUnit::Byte ? Vocabulary::bytes() : Vocabulary::characters_of(text);
  const std::vector<std::int64_t> ids = vocabulary.encode(text);
  check_part("the whole", source, ids.size(), options.context);
  const auto n = static_cast<double>(ids.size());
  const auto split = static_cast<std::size_t>(std::llround((1.0 - options.validation) * n));
  check_part("the training part", source, split, options.context);
  check_part("the validation part", source, ids.size() - split, options.context);
  const auto part = [](std::span<const std::int64_t> tokens) {
    return Tensor::from<std::int64_t>({std::ssize(tokens)}, tokens);
  };
  const std::span<const std::int64_t> all(ids);
  return {std::move(vocabulary), part(all.first(split)), part(all.subspan(split))};
}

Text load_text(const std::filesystem::path& path, const TextOptions& options) {
  return make_text(text_of(path), options, path.string());
}

}  // namespace steady
