#include <steadygrad/core/ops/embedding.hpp>

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/shaping.hpp>
#include <steadygrad/core/ops/check.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

/// Rows of the table by `ids` (i64); with the padding row as zeros, this is the adjoint of
/// `scattered`. Checked ids.
Tensor looked_up(const Tensor& table, const Tensor& ids, std::int64_t padding,
                 bool padding_reads_0);

/// table[ids[m], :] += rows[m, :] from zeros, then the padding row to 0.
Tensor scattered(const Tensor& rows, const Tensor& ids, const Shape& shape, std::int64_t padding) {
  Tensor table = Tensor::zeros(shape, rows.dtype());
  dispatch_float("embedding", rows.dtype(), [&]<FloatElement T>() {
    const auto out = table.mutable_data<T>("embedding backward");
    kernels::scatter_add_rows<T>(rows.data<T>(), shape[0], shape[1], ids.data<std::int64_t>(), out);
    if (padding >= 0) std::fill_n(out.begin() + padding * shape[1], shape[1], T{0});
  });
  return record("embedding_gradient", table, {rows}, {ids}, [padding](BackwardCall& call) {
    call.give(0, [&] { return looked_up(call.grad(), call.saved(0), padding, padding >= 0); });
  });
}

Tensor looked_up(const Tensor& table, const Tensor& ids, std::int64_t padding,
                 bool padding_reads_0) {
  Tensor y = Tensor::empty(ids.shape().appended(table.dim(1)), table.dtype());
  dispatch_float("embedding", table.dtype(), [&]<FloatElement T>() {
    const auto out = y.mutable_data<T>("embedding");
    const auto index = ids.data<std::int64_t>();
    const std::int64_t width = table.dim(1);
    kernels::gather_rows<T>(table.data<T>(), table.dim(0), width, index, out);
    for (std::int64_t m = 0; padding_reads_0 && m < std::ssize(index); ++m) {
      if (index[static_cast<std::size_t>(m)] == padding)
        std::fill_n(out.begin() + m * width, width, T{0});
    }
  });
  return record(
      "embedding", y, {table}, {ids}, [shape = table.shape(), padding](BackwardCall& call) {
        call.give(0, [&] { return scattered(call.grad(), call.saved(0), shape, padding); });
      });
}

void check_ids(const Tensor& ids, std::int64_t rows) {
  const auto index = ids.data<std::int64_t>();
  for (std::size_t m = 0; m < index.size(); ++m) {
    STEADY_CHECK(
        Error, index[m] >= 0 && index[m] < rows,
        "embedding: an id must name a row of the table; got ids[{}] = {} with {} rows, ids "
        "{}",
        m, index[m], rows, describe(ids));
  }
}

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& ids, const EmbeddingOptions& options) {
  detail::check_float("embedding", "table", table);
  check_defined("embedding", "ids", ids);
  STEADY_CHECK(ShapeError, table.rank() == 2 && !is_float(ids.dtype()),
               "embedding: needs a table [rows, width] and i32 or i64 ids; got table {}, ids {}",
               describe(table), describe(ids));
  STEADY_CHECK(Error, options.padding_idx >= -1 && options.padding_idx < table.dim(0),
               "embedding: padding_idx must be -1 or a row; got {} with {} rows",
               options.padding_idx, table.dim(0));
  const Tensor index = ids.dtype() == Dtype::I64 ? ids : ids.detached_copy(Dtype::I64);
  check_ids(index, table.dim(0));
  return looked_up(table, index, options.padding_idx, /*padding_reads_0=*/false);
}

}  // namespace steady
