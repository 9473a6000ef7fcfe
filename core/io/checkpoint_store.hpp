#pragma once

#include <cstdint>
#include <filesystem>
#include <steadygrad/core/io/checkpoint.hpp>
#include <string>
#include <vector>

namespace steady {

/// Options of CheckpointStore.
struct CheckpointStoreOptions {
  std::int64_t keep = 3;  ///< files of a directory that stay, the newest; at least 1
};

/// The newest checkpoint that is whole.
struct LatestCheckpoint {
  Checkpoint checkpoint;
  std::filesystem::path file;
  std::vector<std::string> skipped;  ///< newer files that are damaged, each with its reason
};

/// Where the checkpoints of one run lie. A path that ends in ".h5" is one file, which each save
/// replaces. Any other is a directory of files step-000000000120.h5, of which the last few stay.
class CheckpointStore {
 public:
  /// Touches nothing yet. Throws Error for keep < 1.
  explicit CheckpointStore(std::filesystem::path path, const CheckpointStoreOptions& options = {});

  [[nodiscard]] bool is_directory() const { return directory_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// The checkpoints there, readable or not, newest first.
  [[nodiscard]] std::vector<std::filesystem::path> files() const;

  /// Makes room for saves from `step` on. In a directory, files of later steps would be taken for
  /// newer: damaged ones get ".damaged" behind their names, any other is an Error.
  void prepare(std::int64_t step) const;
  /// Saves (see prepare and save_checkpoint), making the directory if need be, then removes the
  /// oldest files beyond `keep` and what a killed save left. Returns the file.
  std::filesystem::path save(std::int64_t step, const Checkpoint& checkpoint) const;

  /// The newest, past damaged ones. Throws IoError when there is none, with the reason for each,
  /// and ForeignCheckpoint for one of another version or without the right to read it: training
  /// from an older one would lose what is there.
  [[nodiscard]] LatestCheckpoint latest() const;

 private:
  std::filesystem::path path_;
  CheckpointStoreOptions o_;
  bool directory_;
};

}  // namespace steady
