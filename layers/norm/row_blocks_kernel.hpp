#pragma once

#include <algorithm>
#include <cstdint>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/row_stats.hpp>

namespace steady::detail {

/// Calls body(block, begin, end, partial) for the blocks of a plan over `rows` rows, in parallel:
/// what rows [begin, end) add to the gradients of parameters goes to `partial`, the block's
/// `columns` elements of `partials`, zeros at first; null where `partials` is.
template <class T, class Body>
void for_row_blocks(const RowPlan& plan, std::int64_t rows, T* partials, std::int64_t columns,
                    Body&& body) {
  parallel_for(plan.blocks, plan.task_blocks, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      T* partial = partials == nullptr ? nullptr : partials + block * columns;
      if (partial != nullptr) std::fill_n(partial, columns, T(0));
      body(block, block * plan.block_rows, std::min(rows, (block + 1) * plan.block_rows), partial);
    }
  });
}

}  // namespace steady::detail
