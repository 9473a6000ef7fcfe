#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Which normalization a model family uses, as a table: every row has its source.
namespace steady::examples::inspect {

enum class Kind : std::uint8_t {
  Unknown,
  LayerNorm,
  RmsNorm,
  BatchNorm,
  GroupNorm,
  InstanceNorm,
  DynamicTanh,
  WeightNorm,
  SpectralNorm
};

/// "unknown", "layer_norm", "rms_norm", "batch_norm", ...
[[nodiscard]] std::string_view to_string(Kind kind);

/// Where the norms of a block stand.
enum class Placement : std::uint8_t {
  Unknown,
  Pre,       ///< x + f(norm(x))
  Post,      ///< norm(x + f(x))
  Sandwich,  ///< x + norm(f(norm(x)))
  Output,    ///< x + norm(f(x))
  Parallel,  ///< x + f(norm(x)) + g(norm(x)), one norm for both or one each
  Inside     ///< between the convolutions
};

/// "unknown", "pre", "post", "sandwich", "output", "parallel", "inside".
[[nodiscard]] std::string_view to_string(Placement placement);

/// A row: a family of models.
struct Architecture {
  std::string_view name;
  /// Values of the config's "model_type", separated by spaces.
  std::string_view model_types;
  Kind kind = Kind::Unknown;
  Placement placement = Placement::Unknown;
  /// Keys of the config that hold eps, separated by spaces.
  std::string_view eps_keys = {};
  /// eps when the config has none of the keys, or the model has no choice; 0: not known.
  double eps = 0.0;
  double unit_offset = 0.0;  ///< added to the stored gain
  /// Names of tensors that tell the family without a config, separated by spaces: '*' is any text,
  /// a pattern behind '!' must have no tensor.
  std::string_view names = {};
  /// Norms that have no tensors: their paths, '*' for the number of a layer.
  std::string_view without_tensors = {};
  std::string_view source;
};

/// All rows; among those whose names fit, the first is meant.
[[nodiscard]] std::span<const Architecture> architectures();

/// The words of a text.
[[nodiscard]] std::vector<std::string> words(std::string_view text);

/// The row with that model_type, nothing when there is none.
[[nodiscard]] const Architecture* by_model_type(std::string_view model_type);
/// The first row whose names fit; nothing when none does.
[[nodiscard]] const Architecture* by_names(const std::vector<std::string>& tensors);

}  // namespace steady::examples::inspect
