#pragma once

#include <filesystem>
#include <optional>
#include <steadygrad/core/io/safetensors.hpp>
#include <steadygrad/layers/module.hpp>
#include <steadygrad/layers/weight_layout.hpp>

namespace steady {

struct PretrainedOptions {
  WeightLayout layout = {};  ///< weight_layout(model) for a Decoder
  bool strict = true;        ///< throw unless names and shapes agree exactly
  safetensors::ReadOptions reading = {};
};

/// Loads the weights of a safetensors file, an index of several, or a folder of either (see
/// safetensors::Checkpoint) into `model`, as Module::load does: F16 and BF16 widen, f32 and f64
/// convert, and either everything is loaded or nothing. Only tensors that the model has are read.
/// Names that stand for another tensor (tied weights stored once) fill every parameter of that
/// name. Throws IoError for files that cannot be read or trusted, and Error: in one message all
/// missing, unexpected and mis-shaped names; two tensors of the file that come to one name; tied
/// tensors that differ.
LoadReport load_safetensors(Module& model, const std::filesystem::path& path,
                            const PretrainedOptions& options = {});

struct SaveSafetensorsOptions {
  WeightLayout layout = {};  ///< weight_layout(model) for a Decoder
  /// F32, F16, BF16 or F64 for every floating tensor; as they are when empty.
  std::optional<safetensors::Type> type = {};
  safetensors::Metadata metadata = {{"format", "pt"}};  ///< the transformers package wants that
};

/// Writes parameters and buffers of `model` as one safetensors file, tied tensors once, replacing
/// the file as a whole. safetensors.torch.load_model and load_file read it.
void save_safetensors(const Module& model, const std::filesystem::path& path,
                      const SaveSafetensorsOptions& options = {});

}  // namespace steady
