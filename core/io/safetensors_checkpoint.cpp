#include <steadygrad/core/io/safetensors_checkpoint.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/mapped_file.hpp>
#include <system_error>

namespace steady::safetensors {
namespace {

namespace fs = std::filesystem;

/// The file or index that a folder stands for.
fs::path choose(const fs::path& folder) {
  std::error_code error;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (fs::exists(folder / name, error)) return folder / name;
  }
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") found.push_back(entry.path());
  }
  STEADY_CHECK(IoError, !error, "safetensors: cannot list '{}': {}", folder.string(),
               error.message());
  STEADY_CHECK(IoError, found.size() == 1,
               "safetensors: '{}' has {} files that end in .safetensors, and neither "
               "model.safetensors nor model.safetensors.index.json",
               folder.string(), found.size());
  return found.front();
}

std::string joined(const std::vector<std::string>& names) {
  constexpr std::size_t Most = 20;
  std::vector<std::string> text;
  for (std::size_t i = 0; i < std::min(Most, names.size()); ++i) text.push_back(shown(names[i]));
  if (names.size() > Most) text.push_back(fmt::format("and {} more", names.size() - Most));
  return fmt::format("{}", fmt::join(text, "; "));
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& path, const ReadOptions& options) {
  std::error_code error;
  const fs::path chosen = fs::is_directory(path, error) ? choose(path) : path;
  Checkpoint result;
  result.path_ = chosen.string();
  if (chosen.extension() == ".json") {
    result.open_shards(chosen, options);
  } else {
    result.files_.push_back(File::open(chosen, options));
    for (const TensorInfo& t : result.files_[0].tensors()) result.where_.emplace_back(t.name, 0);
  }
  std::ranges::sort(result.where_);
  return result;
}

void Checkpoint::open_shards(const fs::path& index, const ReadOptions& options) {
  const MappedFile text("safetensors", index);
  const auto bytes = text.bytes();
  STEADY_CHECK(IoError, bytes.size() <= MaxHeaderBytes,
               "safetensors: '{}' has {} bytes; an index has at most {}", path_, bytes.size(),
               MaxHeaderBytes);
  const WeightMap map =
      read_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path_);
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, file] : map) shards[file].push_back(tensor);
  std::vector<std::string> absent;
  std::error_code error;
  for (const auto& [file, tensors] : shards) {
    if (!fs::exists(index.parent_path() / file, error)) absent.push_back(file);
  }
  STEADY_CHECK(IoError, absent.empty(), "safetensors: '{}' names files that are not there: {}",
               path_, joined(absent));
  for (auto& [file, tensors] : shards) {
    files_.push_back(File::open(index.parent_path() / file, options));
    const File& shard = files_.back();
    std::vector<std::string> has;
    for (const TensorInfo& t : shard.tensors()) has.push_back(t.name);
    std::ranges::sort(has);
    std::ranges::sort(tensors);
    std::vector<std::string> missing;
    std::vector<std::string> extra;
    std::ranges::set_difference(tensors, has, std::back_inserter(missing));
    std::ranges::set_difference(has, tensors, std::back_inserter(extra));
    STEADY_CHECK(IoError, missing.empty(),
                 "safetensors: '{}' lacks tensors that the index puts there: {}", shard.path(),
                 joined(missing));
    STEADY_CHECK(IoError, extra.empty(),
                 "safetensors: '{}' has tensors that the index does not put there: {}",
                 shard.path(), joined(extra));
    for (std::string& name : has) where_.emplace_back(std::move(name), files_.size() - 1);
  }
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> result;
  result.reserve(where_.size());
  for (const auto& [name, file] : where_) result.push_back(name);
  return result;
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(
      where_, name, {}, [](const auto& entry) -> std::string_view { return entry.first; });
  return at == where_.end() || at->first != name ? nullptr : files_[at->second].find(name);
}

const File& Checkpoint::file_of(std::string_view name) const {
  const auto at = std::ranges::lower_bound(
      where_, name, {}, [](const auto& entry) -> std::string_view { return entry.first; });
  STEADY_CHECK(IoError, at != where_.end() && at->first == name,
               "safetensors: '{}' of '{}': there is no such tensor", shown(name), path_);
  return files_[at->second];
}

std::vector<std::pair<std::string, std::string>> Checkpoint::aliases() const {
  std::vector<std::pair<std::string, std::string>> result;
  for (const File& file : files_) {
    for (auto& alias : file.aliases()) {
      if (find(alias.first) == nullptr) result.push_back(std::move(alias));
    }
  }
  return result;
}

fs::path Checkpoint::folder() const { return fs::path(path_).parent_path(); }

}  // namespace steady::safetensors
