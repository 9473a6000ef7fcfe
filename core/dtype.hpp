#pragma once

#include <concepts>
#include <cstdint>
#include <steadygrad/core/error.hpp>
#include <string_view>
#include <utility>

namespace steady {

/// Element types: float32 trains, float64 checks, int32 and int64 index.
enum class Dtype : std::uint8_t { F32, F64, I32, I64 };

/// Bytes of one element.
[[nodiscard]] constexpr std::int64_t size_of(Dtype dtype) {
  return dtype == Dtype::F32 || dtype == Dtype::I32 ? 4 : 8;
}

/// "f32", "f64", "i32", "i64".
[[nodiscard]] constexpr std::string_view to_string(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32:
      return "f32";
    case Dtype::F64:
      return "f64";
    case Dtype::I32:
      return "i32";
    case Dtype::I64:
      return "i64";
  }
  return "?";
}

[[nodiscard]] constexpr bool is_float(Dtype dtype) {
  return dtype == Dtype::F32 || dtype == Dtype::F64;
}

template <class T>
concept FloatElement = std::same_as<T, float> || std::same_as<T, double>;

template <class T>
concept Element = FloatElement<T> || std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t>;

/// The Dtype of a C++ element type.
template <Element T>
constexpr Dtype dtype_of = std::same_as<T, float>          ? Dtype::F32
                           : std::same_as<T, double>       ? Dtype::F64
                           : std::same_as<T, std::int32_t> ? Dtype::I32
                                                           : Dtype::I64;

/// Calls `f.operator()<float>()` or `<double>`; throws ShapeError naming `op` for integer dtypes.
template <class F>
decltype(auto) dispatch_float(const char* op, Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::F32:
      return std::forward<F>(f).template operator()<float>();
    case Dtype::F64:
      return std::forward<F>(f).template operator()<double>();
    default:
      break;
  }
  throw ShapeError(fmt::format("{}: needs f32 or f64; got {}", op, to_string(dtype)));
}

/// Calls `f.operator()<T>()` for the element type of `dtype`.
template <class F>
decltype(auto) dispatch_all(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::F32:
      return std::forward<F>(f).template operator()<float>();
    case Dtype::F64:
      return std::forward<F>(f).template operator()<double>();
    case Dtype::I32:
      return std::forward<F>(f).template operator()<std::int32_t>();
    case Dtype::I64:
      break;
  }
  return std::forward<F>(f).template operator()<std::int64_t>();
}

}  // namespace steady
