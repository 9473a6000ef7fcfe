#pragma once

#include <filesystem>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/hdf5.hpp>
#include <steadygrad/core/parameter.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace steady {

/// What one object keeps in a checkpoint: tensors, and numbers and text, each under its name.
struct CheckpointPart {
  State tensors;
  hdf5::Attributes values;
};

/// A training state as plain values: parts under their names.
struct Checkpoint {
  struct Named {
    std::string name;
    CheckpointPart part;
  };
  std::vector<Named> parts;

  /// The part of that name, or null.
  [[nodiscard]] const CheckpointPart* find(std::string_view name) const;
};

/// A checkpoint that may be whole and good, but not for this program: of another format version, or
/// a file that it may not open.
class ForeignCheckpoint : public IoError {
 public:
  using IoError::IoError;
};

/// Puts a checkpoint into one HDF5 file: a group per part, in it a dataset per tensor and an
/// attribute per value, under the names given (escaped, see hdf5::escape). In front of the HDF5
/// data stand 512 bytes that name format, size and checksum. checkpoint.md shows the layout.
///
/// The file is written beside `path` under the name path + ".part", synced, renamed, and its
/// directory synced: at every moment `path` is the old file or the new one, whole. Equal
/// checkpoints give equal files. Safe from several threads, for different paths.
///
/// Throws, before anything is written, Error for a name given twice and for text with a NUL,
/// ShapeError for an undefined tensor; IoError with the system's reason when the file cannot be
/// written, which leaves `path` as it was and nothing beside it.
void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);

/// Reads a checkpoint that save_checkpoint wrote, after its size and checksum have been found
/// right: HDF5 sees no damaged file. Tensors come in the order of their names. Throws IoError that
/// names the file for one that is missing, truncated, damaged or something else, and
/// ForeignCheckpoint for one that may not be opened or is of another version.
[[nodiscard]] Checkpoint load_checkpoint(const std::filesystem::path& path);

}  // namespace steady
