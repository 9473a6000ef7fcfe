#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#define STEADY_EXACT_BLOCKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STEADY_EXACT_BLOCKS 1
#endif
#endif

namespace steady::detail {

/// The address sanitizer must see every block's true bounds: nothing is kept for reuse then.
#ifdef STEADY_EXACT_BLOCKS
inline constexpr bool Caching = false;
#else
inline constexpr bool Caching = true;
#endif

/// Fixed-size pieces of memory for what every operation makes: a tensor's body, and a storage with
/// a few elements behind it. Each thread keeps the nodes that it gave back and takes them again
/// without a lock; a node may be given back on another thread than took it.
enum class Node : std::uint8_t { Body, Block };

inline constexpr std::size_t NodeAlignment = 64;
inline constexpr std::array<std::size_t, 2> NodeBytes{128, 256};
/// Nodes of a kind that a thread keeps at most; those beyond go back to the system.
inline constexpr std::int32_t MostNodes = 1 << 14;

struct FreeNode {
  FreeNode* next;
};

/// Nodes that this thread keeps. `room` is 0 until the thread's end has been arranged for and after
/// it has come: giving then takes the slow way.
struct FreeNodes {
  FreeNode* first = nullptr;
  std::int32_t room = 0;
};

extern constinit thread_local std::array<FreeNodes, 2> free_nodes;

[[nodiscard]] void* take_new_node(Node kind);
void give_node_slowly(Node kind, void* node) noexcept;
/// Gives this thread's nodes back to the system.
void trim_nodes() noexcept;
/// Nodes ever taken from the system.
[[nodiscard]] std::int64_t nodes_mapped();

/// NodeBytes[kind] bytes, aligned to NodeAlignment. Throws std::bad_alloc when there are none.
[[nodiscard]] inline void* take_node(Node kind) {
  FreeNodes& nodes = free_nodes[static_cast<std::size_t>(kind)];
  FreeNode* node = nodes.first;
  if (node == nullptr) [[unlikely]]
    return take_new_node(kind);
  nodes.first = node->next;
  ++nodes.room;
  return node;
}

inline void give_node(Node kind, void* node) noexcept {
  FreeNodes& nodes = free_nodes[static_cast<std::size_t>(kind)];
  if (nodes.room <= 0) [[unlikely]]
    return give_node_slowly(kind, node);
  auto* free = static_cast<FreeNode*>(node);
  free->next = nodes.first;
  nodes.first = free;
  --nodes.room;
}

}  // namespace steady::detail
