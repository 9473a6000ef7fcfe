#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <steadygrad/core/io/mapped_file.hpp>
#include <steadygrad/core/io/safetensors_header.hpp>
#include <steadygrad/core/io/safetensors_types.hpp>
#include <steadygrad/core/tensor.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Reading and writing safetensors files, the model files of PyTorch's world. One file is a File, a
/// model in one or several files a Checkpoint (safetensors_checkpoint.hpp).
namespace steady::safetensors {

/// An open file. Only its header is read at first; the elements of a tensor are when they are asked
/// for. The file is mapped: see MappedFile for what happens when it changes meanwhile. Safe to read
/// from several threads.
class File {
 public:
  /// Checks the whole header (see read_header). Throws IoError.
  [[nodiscard]] static File open(const std::filesystem::path& path,
                                 const ReadOptions& options = {});

  /// In the order of their data.
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  [[nodiscard]] const Metadata& metadata() const { return header_.metadata; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Bytes behind the last tensor, see ReadOptions.
  [[nodiscard]] std::uint64_t ignored_bytes() const { return header_.ignored_bytes; }
  /// Names that stand for another tensor of the file, and that tensor: tied weights are stored once
  /// (metadata whose name is no tensor and whose text is one, as safetensors.torch.save_model has).
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> aliases() const;

  /// Nothing when there is no tensor of that name.
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
  /// Throws IoError naming file and tensor when there is none.
  [[nodiscard]] const TensorInfo& at(std::string_view name) const;
  /// The elements as they lie in the file, little-endian and at any address; valid while the File
  /// lives.
  [[nodiscard]] std::span<const std::byte> bytes(std::string_view name) const;
  /// A copy as a tensor of the natural dtype: F16 and BF16 widen to f32, I8, U8 and BOOL to i32.
  /// Throws IoError for an unknown name and for more dimensions than a Tensor has.
  [[nodiscard]] Tensor read(std::string_view name) const;
  /// The same as `dtype`: floating types convert into f32 (rounded) and f64, integers into i32 and
  /// i64. Throws IoError for a float as an integer or the reverse, and for values beyond i32.
  [[nodiscard]] Tensor read(std::string_view name, Dtype dtype) const;

 private:
  std::string path_;
  MappedFile file_;
  Header header_;
  std::vector<std::uint32_t> by_name_;  // indices of header_.tensors, sorted by name
};

/// A tensor to be written.
struct Stored {
  std::string name;
  Tensor value;
  /// The type in the file; that of `value` when empty. Floating values can be stored as any
  /// floating type, rounded to nearest, ties to even; integers as themselves or as BOOL, U8, I8,
  /// I32, I64 where they fit.
  std::optional<Type> type = {};
};

/// The bytes of a file with these tensors: larger elements first, by name among equals, in a header
/// padded with spaces to a multiple of 8: every tensor is aligned for its type, and the bytes
/// depend on nothing else. Tensors that are one tensor (same memory, shape and type) are stored
/// once under the first name, the others are metadata {name: first name}; see File::aliases. Throws
/// Error for undefined tensors, names and metadata that come twice or are not UTF-8, "__metadata__"
/// as a name, and values that do not fit their type.
[[nodiscard]] std::vector<std::byte> encode(std::span<const Stored> tensors,
                                            const Metadata& metadata = {});

/// Writes such a file through replace_file: `path` is the old file or the new one, whole.
void write(const std::filesystem::path& path, std::span<const Stored> tensors,
           const Metadata& metadata = {});

}  // namespace steady::safetensors
