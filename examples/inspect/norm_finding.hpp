#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "examples/inspect/architectures.hpp"
#include "examples/inspect/tensor_list.hpp"

namespace steady::examples::inspect {

/// How far a verdict can be trusted.
enum class Certainty : std::uint8_t {
  Undecidable,  ///< the file does not say
  Likely,       ///< names or values point one way
  Certain       ///< the parameters leave no choice, or the config says it
};

/// "undecidable", "likely", "certain".
[[nodiscard]] std::string_view to_string(Certainty certainty);

/// A module of a checkpoint whose parameters are those of a normalization. Tensors are null where
/// the module has none.
struct NormFinding {
  std::string path;
  const TensorEntry* gain = nullptr;
  const TensorEntry* shift = nullptr;
  const TensorEntry* alpha = nullptr;
  const TensorEntry* running_mean = nullptr;
  const TensorEntry* running_var = nullptr;
  const TensorEntry* batches = nullptr;
  std::vector<std::string> present = {};  ///< names of its parameters
  bool named = false;                     ///< its name says that it is a norm
  std::int64_t width = 0;                 ///< features; 0: not known

  const Architecture* family = nullptr;  ///< of the model that it is part of; null: not known
  Kind kind = Kind::Unknown;
  Certainty certainty = Certainty::Undecidable;
  std::optional<double> eps = {};
  double unit_offset = 0.0;
  std::optional<bool> per_head = {};  ///< for norms of queries and keys
  std::optional<bool> trained = {};   ///< for running statistics
  std::string place = {};             ///< where it stands; empty: the names do not say
  std::vector<std::string> reasons = {};
  std::vector<std::string> would_decide = {};
  std::vector<std::string> health = {};

  [[nodiscard]] bool has_running_stats() const {
    return running_mean != nullptr && running_var != nullptr;
  }
};

/// The last part of a dotted path.
[[nodiscard]] std::string_view last_part(std::string_view path);
/// Whether a module of that name is a norm, as far as names go: norm1, ln_f, bn2, q_layernorm.
[[nodiscard]] bool is_norm_name(std::string_view path);
/// Whether it is a norm of queries or keys.
[[nodiscard]] bool is_query_or_key_norm(std::string_view path);

/// Every normalization with tensors in the file, sorted by path: a gain of rank 1 in a module with
/// a norm's name, gain and shift of one width in any module, running statistics, DynamicTanh's
/// alpha, and the split weights of weight and spectral normalization.
[[nodiscard]] std::vector<NormFinding> find_norms(const TensorList& list);

}  // namespace steady::examples::inspect
