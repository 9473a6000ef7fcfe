#include <steadygrad/core/gradients.hpp>

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/accumulate.hpp>

namespace steady {
namespace {

template <class Items>
auto position(Items& items, const Tensor& leaf) {
  const std::uint64_t id = leaf.storage().id();
  return std::lower_bound(items.begin(), items.end(), id, [](const auto& item, std::uint64_t key) {
    return item.leaf.storage().id() < key;
  });
}

/// Memory of the thread's last gradients, for the next: a training step allocates none.
struct SpareItems {
  std::vector<Gradients::Item> items;
  SpareItems() { present = this; }
  ~SpareItems() { present = nullptr; }
  SpareItems(const SpareItems&) = delete;
  SpareItems& operator=(const SpareItems&) = delete;

  static constinit thread_local SpareItems* present;  // null before the first and at thread end
};
constinit thread_local SpareItems* SpareItems::present = nullptr;

}  // namespace

Gradients::~Gradients() {
  items_.clear();
  SpareItems* spare = SpareItems::present;
  if (spare != nullptr && spare->items.capacity() < items_.capacity()) spare->items.swap(items_);
}

Gradients& Gradients::operator=(Gradients&& other) noexcept {
  items_.swap(other.items_);
  const Gradients before(std::move(other));  // what was here goes back to the spare lists
  return *this;
}

void Gradients::reserve(std::size_t count) {
  if (items_.capacity() >= count) return;
  thread_local SpareItems spare;
  if (items_.empty()) items_.swap(spare.items);
  items_.reserve(count);
}

Gradients::Gradients(const Gradients& other) {
  items_.reserve(other.items_.size());
  for (const Item& item : other.items_) {
    items_.push_back({item.leaf, item.gradient.detached_copy()});
  }
}

Gradients& Gradients::operator=(const Gradients& other) {
  Gradients copy(other);
  items_.swap(copy.items_);
  return *this;
}

const Tensor* Gradients::find(const Tensor& leaf) const {
  const auto at = position(items_, leaf);
  return at != items_.end() && at->leaf.shares_storage_with(leaf) ? &at->gradient : nullptr;
}

Tensor* Gradients::find(const Tensor& leaf) {
  const auto at = position(items_, leaf);
  return at != items_.end() && at->leaf.shares_storage_with(leaf) ? &at->gradient : nullptr;
}

const Tensor& Gradients::operator[](const Tensor& leaf) const {
  const Tensor* gradient = find(leaf);
  STEADY_CHECK(Error, gradient != nullptr,
               "gradients: backward did not reach this leaf (does it require a gradient, and does "
               "the loss depend on it?); got {}",
               describe(leaf));
  return *gradient;
}

Gradients& Gradients::operator+=(const Gradients& other) {
  for (const Item& item : other.items_) {
    if (Tensor* mine = find(item.leaf)) {
      STEADY_CHECK(ShapeError,
                   mine->shape() == item.gradient.shape() && mine->dtype() == item.gradient.dtype(),
                   "gradients: shapes of one leaf must agree; got {} and {}", describe(*mine),
                   describe(item.gradient));
    }
  }
  for (const Item& item : other.items_) {
    Tensor* mine = find(item.leaf);
    if (mine == nullptr) {
      insert(item.leaf, item.gradient.detached_copy());
      continue;
    }
    dispatch_float("gradients", mine->dtype(), [&]<FloatElement T>() {
      kernels::accumulate<T>(mine->mutable_data<T>("gradients +="), item.gradient.data<T>());
    });
  }
  return *this;
}

Gradients& Gradients::operator*=(double factor) {
  for (Item& item : items_) {
    dispatch_float("gradients", item.gradient.dtype(), [&]<FloatElement T>() {
      kernels::multiply<T>(item.gradient.mutable_data<T>("gradients *="), static_cast<T>(factor));
    });
  }
  return *this;
}

void Gradients::insert(Tensor leaf, Tensor gradient) {
  const auto at = position(items_, leaf);
  STEADY_CHECK(Error, at == items_.end() || !at->leaf.shares_storage_with(leaf),
               "gradients: leaf {} has a gradient already", describe(leaf));
  items_.insert(at, {std::move(leaf), std::move(gradient)});
}

}  // namespace steady
