#include <steadygrad/core/io/checkpoint_store.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <steadygrad/core/error.hpp>
#include <system_error>
#include <utility>

namespace steady {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view Prefix = "step-";
constexpr std::string_view Suffix = ".h5";
constexpr std::string_view Part = ".h5.part";

/// The number in "step-000000000120" + suffix; nothing for another name.
std::optional<std::int64_t> step_of(std::string_view name, std::string_view suffix) {
  if (!name.starts_with(Prefix) || !name.ends_with(suffix)) return std::nullopt;
  if (name.size() <= Prefix.size() + suffix.size()) return std::nullopt;
  const char* begin = name.data() + Prefix.size();
  const char* end = name.data() + name.size() - suffix.size();
  std::int64_t step = 0;
  const auto [at, code] = std::from_chars(begin, end, step);
  if (at != end || code != std::errc{} || step < 0) return std::nullopt;
  return step;
}

/// The files of a directory that are named so, with their steps, last step first.
std::vector<std::pair<std::int64_t, fs::path>> numbered(const fs::path& directory,
                                                        std::string_view suffix) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory, none)) {
    const auto step = step_of(entry.path().filename().string(), suffix);
    if (step) found.emplace_back(*step, entry.path());
  }
  std::ranges::sort(found, std::greater());
  return found;
}

}  // namespace

CheckpointStore::CheckpointStore(fs::path path, const CheckpointStoreOptions& options)
    : path_(std::move(path)), o_(options), directory_(path_.extension() != Suffix) {
  STEADY_CHECK(Error, o_.keep >= 1, "CheckpointStore: keep must be at least 1; got {}", o_.keep);
}

std::vector<fs::path> CheckpointStore::files() const {
  std::vector<fs::path> result;
  std::error_code none;
  if (!directory_ && fs::exists(path_, none)) result.push_back(path_);
  if (directory_) {
    for (auto& [step, file] : numbered(path_, Suffix)) result.push_back(std::move(file));
  }
  return result;
}

void CheckpointStore::prepare(std::int64_t step) const {
  if (!directory_) return;
  for (const auto& [later, file] : numbered(path_, Suffix)) {
    if (later <= step) return;
    bool readable = true;
    try {
      (void)load_checkpoint(file);
    } catch (const ForeignCheckpoint&) {  // not damaged
    } catch (const IoError&) {
      readable = false;
    }
    STEADY_CHECK(Error, !readable,
                 "checkpoint: '{}' is from a later step than {}; save in another directory or "
                 "remove it",
                 file.string(), step);
    std::error_code ignored;
    fs::rename(file, file.string() + ".damaged", ignored);
  }
}

fs::path CheckpointStore::save(std::int64_t step, const Checkpoint& checkpoint) const {
  if (!directory_) {
    save_checkpoint(path_, checkpoint);
    return path_;
  }
  std::error_code error;
  fs::create_directories(path_, error);
  STEADY_CHECK(IoError, !error && fs::is_directory(path_, error),
               "checkpoint: cannot make the directory '{}': {}", path_.string(),
               error ? error.message() : "a file is in its place");
  prepare(step);
  fs::path file = path_ / fmt::format("{}{:012}{}", Prefix, step, Suffix);
  save_checkpoint(file, checkpoint);
  std::error_code ignored;
  for (const auto& [other, part] : numbered(path_, Part)) fs::remove(part, ignored);
  const auto all = numbered(path_, Suffix);
  for (std::size_t i = static_cast<std::size_t>(o_.keep); i < all.size(); ++i) {
    fs::remove(all[i].second, ignored);
  }
  return file;
}

LatestCheckpoint CheckpointStore::latest() const {
  const std::vector<fs::path> all = files();
  STEADY_CHECK(IoError, !all.empty(), "checkpoint: there is none in '{}'", path_.string());
  std::vector<std::string> skipped;
  for (const fs::path& file : all) {
    try {
      Checkpoint checkpoint = load_checkpoint(file);
      return {std::move(checkpoint), file, std::move(skipped)};
    } catch (const ForeignCheckpoint&) {
      throw;
    } catch (const IoError& error) {
      skipped.emplace_back(error.what());
    }
  }
  throw IoError(skipped.size() == 1 ? skipped.front()
                                    : fmt::format("checkpoint: none in '{}' can be read\n  {}",
                                                  path_.string(), fmt::join(skipped, "\n  ")));
}

}  // namespace steady
