#include "examples/common/text_source.hpp"

#include <filesystem>
#include <steadygrad/core/data/markov.hpp>
#include <steadygrad/core/error.hpp>
#include <utility>

namespace steady::examples {
namespace {

/// The file to read; empty when there is none.
std::filesystem::path chosen_file(const TextSourceOptions& options) {
  if (!options.file.empty()) return options.file;
  std::error_code failure;
  for (const char* name : {"tiny_shakespeare.txt", "moby_dick.txt"}) {
    std::filesystem::path path = std::filesystem::path(options.directory) / name;
    if (std::filesystem::is_regular_file(path, failure)) return path;
  }
  return {};
}

std::string with_sizes(const std::string& what, const Text& text) {
  return fmt::format("{}: {} different {}, {} for training and {} for validation", what,
                     text.vocabulary.size(),
                     text.vocabulary.unit() == TextUnit::Byte ? "bytes" : "characters",
                     text.train.numel(), text.validation.numel());
}

}  // namespace

TextSource load_text_source(const TextSourceOptions& options) {
  const std::filesystem::path file = chosen_file(options);
  if (!file.empty()) {
    Text text = load_text(file, options.text);
    std::string source = with_sizes(fmt::format("'{}'", file.string()), text);
    return {std::move(text), std::move(source), std::nullopt};
  }
  const MarkovText markov = make_markov_text({.length = options.generated});
  Text text = make_text(markov.text, options.text, "generated text");
  const std::string what = fmt::format(
      "generated text of {:.4f} nats per character, for want of one in '{}' (examples/data.sh text "
      "brings it)",
      markov.entropy, options.directory);
  std::string source = with_sizes(what, text);
  return {std::move(text), std::move(source), markov.entropy};
}

}  // namespace steady::examples
