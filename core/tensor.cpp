#include <steadygrad/core/tensor.hpp>

#include <algorithm>
#include <cstring>
#include <steadygrad/core/error.hpp>

namespace steady {

Tensor Tensor::empty(const Shape& shape, Dtype dtype) {
  std::int64_t bytes = 0;
  STEADY_CHECK(ShapeError, !__builtin_mul_overflow(shape.numel(), size_of(dtype), &bytes),
               "tensor: number of bytes does not fit 64 bits; got {} {}", to_string(dtype),
               to_string(shape));
  return Tensor(new detail::TensorBody{Storage::create(bytes), shape, dtype});
}

Tensor Tensor::zeros(const Shape& shape, Dtype dtype) {
  Tensor t = empty(shape, dtype);
  std::memset(t.storage().bytes(), 0, static_cast<std::size_t>(t.storage().size()));
  return t;
}

Tensor Tensor::full(const Shape& shape, double value, Dtype dtype) {
  Tensor t = empty(shape, dtype);
  dispatch_all(dtype, [&]<Element T>() {
    std::ranges::fill(t.mutable_data<T>("full"), static_cast<T>(value));
  });
  return t;
}

template <Element T>
Tensor Tensor::from(const Shape& shape, std::span<const T> values) {
  STEADY_CHECK(ShapeError, static_cast<std::int64_t>(values.size()) == shape.numel(),
               "Tensor::from: needs {} values for shape {}; got {}", shape.numel(),
               to_string(shape), values.size());
  Tensor t = empty(shape, dtype_of<T>);
  std::ranges::copy(values, t.mutable_data<T>("from").begin());
  return t;
}
template Tensor Tensor::from(const Shape&, std::span<const float>);
template Tensor Tensor::from(const Shape&, std::span<const double>);
template Tensor Tensor::from(const Shape&, std::span<const std::int32_t>);
template Tensor Tensor::from(const Shape&, std::span<const std::int64_t>);

Tensor Tensor::of(const Shape& shape, std::initializer_list<double> values, Dtype dtype) {
  return from(shape, std::span<const double>(values.begin(), values.size())).detached_copy(dtype);
}

double Tensor::item() const {
  STEADY_CHECK(ShapeError, numel() == 1, "item: needs exactly one element; got {}",
               describe(*this));
  return dispatch_all(dtype(), [&]<Element T>() { return static_cast<double>(data<T>()[0]); });
}

void Tensor::copy_from(const Tensor& source, const char* writer) {
  check_defined(writer, "source", source);
  STEADY_CHECK(ShapeError, shape() == source.shape() && dtype() == source.dtype(),
               "{}: needs {}; got {}", writer, describe(*this), describe(source));
  storage().touch(writer);
  if (!shares_storage_with(source)) {
    std::memcpy(storage().bytes(), source.storage().bytes(),
                static_cast<std::size_t>(numel() * size_of(dtype())));
  }
}

Tensor Tensor::detach() const { return alias(shape()); }

Tensor Tensor::detached_copy(Dtype to) const {
  Tensor copy = empty(shape(), to);
  if (to == dtype()) {
    std::memcpy(copy.storage().bytes(), storage().bytes(),
                static_cast<std::size_t>(numel() * size_of(to)));
    return copy;
  }
  dispatch_all(dtype(), [&]<Element From>() {
    dispatch_all(to, [&]<Element To>() {
      std::ranges::transform(data<From>(), copy.mutable_data<To>("convert").begin(),
                             [](From value) { return static_cast<To>(value); });
    });
  });
  return copy;
}

Tensor& Tensor::set_requires_grad(bool value) {
  STEADY_CHECK(ShapeError, !value || is_float(dtype()),
               "set_requires_grad: only f32 and f64 have gradients; got {}", describe(*this));
  STEADY_CHECK(Error, body().serial == 0,
               "set_requires_grad: the tensor was computed on a tape; call detach() first; got {}",
               describe(*this));
  body().requires_grad = value;
  return *this;
}

void detail::undefined_tensor() { throw ShapeError("tensor: undefined tensor used"); }

Tensor Tensor::alias(const Shape& shape) const {
  STEADY_CHECK(ShapeError, shape.numel() == numel(),
               "reshape: the number of elements must stay; got {} to {}", describe(*this),
               to_string(shape));
  body().storage->retain();
  return Tensor(new detail::TensorBody{body().storage, shape, dtype()});
}

void Tensor::refuse_dtype(Dtype expected) const {
  throw ShapeError(fmt::format("tensor: elements asked for as {}; got {}", to_string(expected),
                               describe(*this)));
}

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return fmt::format("{} {}", to_string(tensor.dtype()), to_string(tensor.shape()));
}

void check_defined(const char* op, const char* name, const Tensor& tensor) {
  STEADY_CHECK(ShapeError, tensor.defined(), "{}: {} must be defined; got an undefined tensor", op,
               name);
}

void check_same_dtype(const char* op, const Tensor& a, const Tensor& b) {
  STEADY_CHECK(ShapeError, a.dtype() == b.dtype(),
               "{}: dtypes must be equal (there is no implicit promotion); got {} and {}", op,
               describe(a), describe(b));
}

}  // namespace steady
