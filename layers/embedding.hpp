#pragma once

#include <cstdint>
#include <steadygrad/layers/layer.hpp>
#include <string>

namespace steady {

/// A learned row per id: y[..., :] = weight[ids[...], :]. ids: i64 or i32 of any shape; y: [...,
/// dim]; weight: [count, dim], Role::Embedding. Repeated ids add up in the gradient. Initially
/// standard normal, as PyTorch. The same in every mode. Throws Error for count or dim below 1, for
/// a padding_idx that is no row, and for an id outside the table, with its position.
class Embedding : public Layer {
 public:
  struct Options {
    std::int64_t count = 0;         ///< rows: the vocabulary, or the positions
    std::int64_t dim = 0;           ///< features of a row
    std::int64_t padding_idx = -1;  ///< a row that starts as zeros and gets no gradient; -1: none
    Init weight_init = {};          ///< empty: the default above
  };
  explicit Embedding(Options options);

  /// ids -> rows.
  Tensor forward(const Tensor& ids) override;
  /// The rows first .. first + count - 1 as [count, dim]: learned positions. Throws Error when the
  /// table has fewer.
  [[nodiscard]] Tensor rows(std::int64_t first, std::int64_t count) const;
  [[nodiscard]] std::string describe() const override;

  const Options o;
  Tensor& weight;
};

}  // namespace steady
