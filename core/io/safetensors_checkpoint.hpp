#pragma once

#include <cstddef>
#include <filesystem>
#include <steadygrad/core/io/safetensors.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace steady::safetensors {

/// The index of a model in several files: which file holds which tensor.
using WeightMap = std::vector<std::pair<std::string, std::string>>;

/// Reads the text of a model.safetensors.index.json. Not trusted: an object with "weight_map"
/// {tensor: file}, whose files are plain names in the index's own folder; other members are passed
/// over, nested at most 64 deep. Throws IoError that names `file`: bad JSON, a tensor or
/// "weight_map" twice or the latter not at all, a file that is empty, begins with a dot, does not
/// end in .safetensors, or leads elsewhere by a '/', a '\' or a control character.
[[nodiscard]] WeightMap read_index(std::string_view text, const std::string& file);

/// A model in one or several safetensors files. Reading is as with File.
class Checkpoint {
 public:
  /// `path`: a .safetensors file; an index (*.json); or a folder with model.safetensors,
  /// model.safetensors.index.json, or just one file that ends in .safetensors, looked for in this
  /// order. Throws IoError: what File and read_index throw; a folder without or with several; files
  /// of the index that are not there, all in one message; tensors that their file does not have;
  /// tensors of a file that the index does not name.
  [[nodiscard]] static Checkpoint open(const std::filesystem::path& path,
                                       const ReadOptions& options = {});

  /// Files, in the order of their names.
  [[nodiscard]] const std::vector<File>& files() const { return files_; }
  /// Every tensor, sorted by name.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
  /// As those of File.
  [[nodiscard]] const TensorInfo& at(std::string_view name) const { return file_of(name).at(name); }
  [[nodiscard]] Tensor read(std::string_view name) const { return file_of(name).read(name); }
  [[nodiscard]] Tensor read(std::string_view name, Dtype dtype) const {
    return file_of(name).read(name, dtype);
  }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> aliases() const;
  /// What was opened, for messages.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// The folder that it lies in.
  [[nodiscard]] std::filesystem::path folder() const;

 private:
  void open_shards(const std::filesystem::path& index, const ReadOptions& options);
  [[nodiscard]] const File& file_of(std::string_view name) const;

  std::string path_;
  std::vector<File> files_;
  std::vector<std::pair<std::string, std::size_t>> where_;  // sorted: tensor, file
};

}  // namespace steady::safetensors
