#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace steady::examples::inspect {

/// One tensor of a checkpoint. Its values are read when they are asked for.
struct TensorEntry {
  std::string name;  ///< dotted path
  std::vector<std::int64_t> dims;
  std::string type;
  std::function<std::vector<double>()> read;

  [[nodiscard]] std::int64_t numel() const;
};

/// The tensors of a checkpoint, whatever its format, sorted by name.
struct TensorList {
  std::string path;
  std::filesystem::path folder;
  std::vector<TensorEntry> tensors;
  /// Tied weights: a name and the tensor that it stands for.
  std::vector<std::pair<std::string, std::string>> aliases;
  /// Datasets that are no tensor of ours, each with the reason.
  std::vector<std::string> unread;
  /// Bytes that belong to no tensor, which the format forbids.
  std::uint64_t ignored_bytes = 0;

  /// Nothing when there is no tensor of that name.
  [[nodiscard]] const TensorEntry* find(const std::string& name) const;
};

/// Opens a safetensors file, an index of several, a folder of either, or an HDF5 file (told by its
/// first bytes). In an HDF5 file every dataset of numbers is a tensor, its name the path with dots;
/// where there is a group "model" only what is in it counts, without "model", "parameters" and
/// "buffers" in the name. Throws IoError.
[[nodiscard]] TensorList list_tensors(const std::filesystem::path& path);

}  // namespace steady::examples::inspect
