#pragma once

#include <cstdint>
#include <optional>
#include <steadygrad/core/parameter.hpp>
#include <steadygrad/core/tensor.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace steady {

class Decoder;

/// How another program's checkpoint names and lays out the tensors of a module. Most need nothing:
/// names in state() are PyTorch's, and so are the layouts of linear maps [out, in], convolutions
/// [out, in, height, width], embeddings and norms. A pattern is a name in which every '*' stands
/// for one or more characters, as few as will do.
struct WeightLayout {
  /// A name of theirs that fits `theirs` becomes `ours`, with what the stars stood for in their
  /// order; both have the same number of stars. The first rule that fits is taken, no second one.
  /// On saving the rules work the other way round.
  struct Rename {
    std::string theirs;
    std::string ours;
    bool load_only = false;
  };
  std::vector<Rename> rename = {};
  /// Matrices that they store as [in, out]: patterns of our names. GPT-2's Conv1D.
  std::vector<std::string> transposed = {};
  /// A linear map behind a flattened image: their columns run over channel, height, width, ours
  /// over height, width, channel. `name`: a pattern of our names.
  struct Flattened {
    std::string name;
    std::int64_t channels = 0;
  };
  std::vector<Flattened> flattened = {};
  /// A tensor that the module does not have because it is `present` (our names both). When a file
  /// has it all the same, the values must agree; saved files note it as an alias.
  struct Tie {
    std::string absent;
    std::string present;
  };
  std::vector<Tie> tied = {};
  /// Tensors of the file that mean nothing here: patterns of their names.
  std::vector<std::string> ignored = {};
};

/// What a decoder's family needs: the names with and without the prefix of the stack, tied heads,
/// the buffers of old files (causal masks, rotary frequencies), and for Gpt2 the transposed
/// matrices of Conv1D. (Models with GPT-2's names but plain linear maps: clear `transposed`.)
[[nodiscard]] WeightLayout weight_layout(const Decoder& model);

/// `name` with `pattern` replaced; nothing when it does not fit. Throws Error when the patterns
/// have other numbers of stars.
[[nodiscard]] std::optional<std::string> rewrite(std::string_view pattern,
                                                 std::string_view replacement,
                                                 std::string_view name);
/// Whether `name` fits one of the patterns.
[[nodiscard]] bool fits_any(const std::vector<std::string>& patterns, std::string_view name);

/// Whether a matrix of that name (ours) is stored as [in, out].
[[nodiscard]] bool is_transposed(const WeightLayout& layout, std::string_view our_name);

[[nodiscard]] std::string our_name(const WeightLayout& layout, std::string_view theirs);
[[nodiscard]] std::string their_name(const WeightLayout& layout, std::string_view ours);

/// Their values as ours, and back; the same handle when nothing is to be done. A tensor whose shape
/// does not allow it is left as it is: loading names it then. Not recorded.
[[nodiscard]] Tensor to_ours(const WeightLayout& layout, std::string_view our_name,
                             const Tensor& theirs);
[[nodiscard]] Tensor to_theirs(const WeightLayout& layout, std::string_view our_name,
                               const Tensor& ours);

/// Throws Error for a pattern in `flattened` that fits no name of the model's state, ShapeError for
/// one that fits a matrix whose columns are not a multiple of the channels.
void check_layout(const WeightLayout& layout, const State& ours);

}  // namespace steady
