#pragma once

#include <cstddef>

namespace steady::detail {

/// Storages start at a multiple of this many bytes.
inline constexpr std::size_t Alignment = 64;

/// A block of `bytes` (a multiple of Alignment) from the system, or null. For blocks of 64 KiB and
/// more huge pages are asked for; those up to 8 MiB lie side by side in them. Blocks of 4 KiB and
/// more start at different places of a page: a pass over several arrays that all begin at the same
/// place, an optimizer's say, would run up to four times slower, as they share cache sets.
[[nodiscard]] void* take_from_system(std::size_t bytes);

/// Gives the memory of such a block back. False: the block's place among others stays taken, and
/// can be used like a new block, though in small pages at first.
[[nodiscard]] bool give_to_system(void* block, std::size_t bytes);

}  // namespace steady::detail
