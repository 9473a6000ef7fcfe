#pragma once

#include <cstdint>
#include <span>
#include <steadygrad/core/tensor.hpp>
#include <vector>

namespace steady {

/// Gradients of one scalar by its leaves: a value. A leaf is known by its storage, so tied weights
/// have one entry. Every gradient owns its memory alone; copying copies the numbers.
class Gradients {
 public:
  struct Item {
    Tensor leaf;
    Tensor gradient;
  };

  Gradients() = default;
  Gradients(const Gradients& other);
  Gradients& operator=(const Gradients& other);
  Gradients(Gradients&&) noexcept = default;
  Gradients& operator=(Gradients&& other) noexcept;
  ~Gradients();

  /// The gradient of `leaf`; throws Error when backward did not reach it.
  [[nodiscard]] const Tensor& operator[](const Tensor& leaf) const;
  /// The same, or null.
  [[nodiscard]] const Tensor* find(const Tensor& leaf) const;
  [[nodiscard]] Tensor* find(const Tensor& leaf);
  [[nodiscard]] bool contains(const Tensor& leaf) const { return find(leaf) != nullptr; }

  /// In the order in which the leaves were created.
  [[nodiscard]] std::span<const Item> items() const { return items_; }
  [[nodiscard]] std::span<Item> items() { return items_; }
  [[nodiscard]] std::size_t size() const { return items_.size(); }
  [[nodiscard]] bool empty() const { return items_.empty(); }

  /// Adds gradients leaf by leaf; leaves that only `other` has are copied in.
  Gradients& operator+=(const Gradients& other);
  /// Multiplies every gradient.
  Gradients& operator*=(double factor);

  /// Adds an item; throws Error when the leaf is there already.
  void insert(Tensor leaf, Tensor gradient);
  /// Makes room for `count` items.
  void reserve(std::size_t count);

 private:
  std::vector<Item> items_;  // by the id of the leaf's storage
};

}  // namespace steady
