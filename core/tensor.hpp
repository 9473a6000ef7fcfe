#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <steadygrad/core/dtype.hpp>
#include <steadygrad/core/node_pool.hpp>
#include <steadygrad/core/shape.hpp>
#include <steadygrad/core/storage.hpp>
#include <string>
#include <utility>

namespace steady {

namespace detail {

/// What a Tensor handle points at. `serial` and `slot` say where on which tape the value was made
/// (serial 0: nowhere); they are plain numbers, so no body keeps a tape or another body alive.
struct TensorBody {
  static void* operator new(std::size_t) { return take_node(Node::Body); }
  static void operator delete(void* body) noexcept { give_node(Node::Body, body); }

  Storage* storage;
  Shape shape;
  Dtype dtype;
  bool requires_grad = false;
  std::int32_t slot = -1;
  std::uint64_t serial = 0;
  std::atomic<std::int32_t> references{1};
};
static_assert(sizeof(TensorBody) <= NodeBytes[0]);

[[noreturn]] void undefined_tensor();

}  // namespace detail

/// A shared handle to a contiguous row-major block of numbers. Copying the handle shares the block;
/// `reshape` shares it, every other operation makes a new one. There are no strides and no implicit
/// dtype promotion. A default-constructed Tensor is undefined (for "no bias" and the like).
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& other) noexcept : body_(other.body_) {
    if (body_ != nullptr) body_->references.fetch_add(1, std::memory_order_relaxed);
  }
  Tensor(Tensor&& other) noexcept : body_(std::exchange(other.body_, nullptr)) {}
  Tensor& operator=(const Tensor& other) noexcept {
    Tensor(other).swap(*this);
    return *this;
  }
  Tensor& operator=(Tensor&& other) noexcept {
    Tensor(std::move(other)).swap(*this);
    return *this;
  }
  ~Tensor() { reset(); }
  void swap(Tensor& other) noexcept { std::swap(body_, other.body_); }
  void reset() noexcept {
    detail::TensorBody* body = std::exchange(body_, nullptr);
    if (body == nullptr || body->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    body->storage->release();
    delete body;
  }

  // --- making ---
  /// Uninitialised elements.
  [[nodiscard]] static Tensor empty(const Shape& shape, Dtype dtype = Dtype::F32);
  [[nodiscard]] static Tensor zeros(const Shape& shape, Dtype dtype = Dtype::F32);
  [[nodiscard]] static Tensor full(const Shape& shape, double value, Dtype dtype = Dtype::F32);
  [[nodiscard]] static Tensor ones(const Shape& shape, Dtype dtype = Dtype::F32) {
    return full(shape, 1.0, dtype);
  }
  /// A tensor of rank 0.
  [[nodiscard]] static Tensor scalar(double value, Dtype dtype = Dtype::F32) {
    return full(Shape{}, value, dtype);
  }
  /// A copy of `values` in row-major order; throws ShapeError unless their number fits `shape`.
  template <Element T>
  [[nodiscard]] static Tensor from(const Shape& shape, std::span<const T> values);
  /// The same from a literal list, converted to `dtype`.
  [[nodiscard]] static Tensor of(const Shape& shape, std::initializer_list<double> values,
                                 Dtype dtype = Dtype::F32);

  // --- asking ---
  [[nodiscard]] bool defined() const { return body_ != nullptr; }
  [[nodiscard]] const Shape& shape() const { return body().shape; }
  [[nodiscard]] Dtype dtype() const { return body().dtype; }
  [[nodiscard]] int rank() const { return shape().rank(); }
  [[nodiscard]] std::int64_t dim(int axis) const { return shape()[axis]; }
  [[nodiscard]] std::int64_t numel() const { return shape().numel(); }
  /// The only element as a double; throws ShapeError when there is not exactly one.
  [[nodiscard]] double item() const;
  /// True when both handles share one block of memory.
  [[nodiscard]] bool shares_storage_with(const Tensor& other) const {
    return defined() && other.defined() && body_->storage == other.body_->storage;
  }

  // --- elements ---
  /// The elements, row-major. Throws ShapeError when T is not the tensor's dtype.
  template <Element T>
  [[nodiscard]] std::span<const T> data() const {
    return {static_cast<const T*>(elements(dtype_of<T>)), static_cast<std::size_t>(numel())};
  }
  /// The elements for writing. Raises the storage's version under the name `writer` (a string
  /// literal): a backward that saved the old value then refuses to run and says who wrote.
  template <Element T>
  [[nodiscard]] std::span<T> mutable_data(const char* writer = "mutable_data") {
    void* p = elements(dtype_of<T>);
    body_->storage->touch(writer);
    return {static_cast<T*>(p), static_cast<std::size_t>(numel())};
  }
  /// Overwrites the elements with those of a tensor of the same shape and dtype (else ShapeError).
  void copy_from(const Tensor& source, const char* writer = "copy_from");

  // --- leaving the tape, by name ---
  /// The same memory, but a constant for every tape.
  [[nodiscard]] Tensor detach() const;
  /// A copy in memory of its own, a constant for every tape; optionally in another dtype.
  [[nodiscard]] Tensor detached_copy() const { return detached_copy(dtype()); }
  [[nodiscard]] Tensor detached_copy(Dtype dtype) const;

  // --- gradients ---
  /// Whether a tape treats this tensor as a leaf whose gradient is wanted.
  [[nodiscard]] bool requires_grad() const { return body().requires_grad; }
  /// Throws ShapeError for integer dtypes and Error for a tensor that a tape has computed.
  Tensor& set_requires_grad(bool value = true);

  // --- for the tape ---
  [[nodiscard]] detail::TensorBody& body() const {
    if (body_ == nullptr) [[unlikely]]
      detail::undefined_tensor();
    return *body_;
  }
  [[nodiscard]] Storage& storage() const { return *body().storage; }
  /// True when no other handle and no other tensor shares the memory.
  [[nodiscard]] bool unique() const {
    return body().references.load(std::memory_order_acquire) == 1 && body().storage->unique();
  }
  /// A new tensor over the same memory with another shape of equal size; not recorded.
  [[nodiscard]] Tensor alias(const Shape& shape) const;

 private:
  explicit Tensor(detail::TensorBody* body) : body_(body) {}
  [[nodiscard]] void* elements(Dtype expected) const {
    if (body().dtype != expected) [[unlikely]]
      refuse_dtype(expected);
    return body_->storage->bytes();
  }
  [[noreturn]] void refuse_dtype(Dtype expected) const;

  detail::TensorBody* body_ = nullptr;
};

/// "f32 [2, 3]"; "undefined" for an undefined tensor.
[[nodiscard]] std::string describe(const Tensor& tensor);

/// Throws ShapeError unless the tensor is defined.
void check_defined(const char* op, const char* name, const Tensor& tensor);
/// Throws ShapeError unless both are of one dtype.
void check_same_dtype(const char* op, const Tensor& a, const Tensor& b);

}  // namespace steady
