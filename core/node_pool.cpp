#include <steadygrad/core/node_pool.hpp>

#include <atomic>
#include <cstdlib>
#include <new>

namespace steady::detail {

constinit thread_local std::array<FreeNodes, 2> free_nodes{};

namespace {

std::atomic<std::int64_t> mapped{0};
constinit thread_local bool ended = false;

void drain(FreeNodes& nodes) noexcept {
  while (nodes.first != nullptr) {
    FreeNode* node = nodes.first;
    nodes.first = node->next;
    std::free(node);
    ++nodes.room;
  }
}

/// Empties the lists when the thread ends. Tensors that die later give their nodes to the system.
struct AtThreadEnd {
  AtThreadEnd() {
    for (FreeNodes& nodes : free_nodes) nodes.room = MostNodes;
  }
  ~AtThreadEnd() {
    ended = true;
    for (FreeNodes& nodes : free_nodes) {
      drain(nodes);
      nodes.room = 0;
    }
  }
};

void arrange_for_end() {
  if (ended || !Caching) return;
  thread_local const AtThreadEnd end;
}

}  // namespace

void* take_new_node(Node kind) {
  arrange_for_end();
  void* node = std::aligned_alloc(NodeAlignment, NodeBytes[static_cast<std::size_t>(kind)]);
  if (node == nullptr) throw std::bad_alloc();
  mapped.fetch_add(1, std::memory_order_relaxed);
  return node;
}

void give_node_slowly(Node kind, void* node) noexcept {
  arrange_for_end();
  if (free_nodes[static_cast<std::size_t>(kind)].room > 0) return give_node(kind, node);
  std::free(node);
}

void trim_nodes() noexcept {
  for (FreeNodes& nodes : free_nodes) drain(nodes);
}

std::int64_t nodes_mapped() { return mapped.load(std::memory_order_relaxed); }

}  // namespace steady::detail
