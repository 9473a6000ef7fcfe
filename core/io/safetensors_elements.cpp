#include <steadygrad/core/io/safetensors_elements.hpp>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/half.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady::safetensors {
namespace {

/// The 16-bit types and BOOL need names of their own, to be told from integers.
struct Half {
  std::uint16_t bits;
};
struct Brain {
  std::uint16_t bits;
};
struct Boolean {
  std::uint8_t bits;
};

template <class T>
concept Real = std::floating_point<T> || std::same_as<T, Half> || std::same_as<T, Brain>;

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  if constexpr (std::endian::native == std::endian::big && sizeof(T) > 1) {
    auto* bytes = reinterpret_cast<std::byte*>(&value);
    std::reverse(bytes, bytes + sizeof(T));
  }
  return value;
}

template <class T>
void store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(T));
  if constexpr (std::endian::native == std::endian::big) std::reverse(to, to + sizeof(T));
}

template <class From>
auto widen(From value) {
  if constexpr (std::same_as<From, Half>) {
    return half_to_float(value.bits);
  } else if constexpr (std::same_as<From, Brain>) {
    return bfloat16_to_float(value.bits);
  } else if constexpr (std::same_as<From, Boolean>) {
    return std::int32_t{value.bits != 0};
  } else {
    return value;
  }
}

/// Whether the integer conversion keeps the value.
template <class To, class From>
bool fits(From value) {
  return std::in_range<To>(value);
}

/// The value as the file has it; false when it does not fit.
template <class To, class From>
bool narrow(From value, To& out) {
  if constexpr (std::same_as<To, Half>) {
    out.bits = float_to_half(narrow_to_odd(static_cast<double>(value)));
  } else if constexpr (std::same_as<To, Brain>) {
    out.bits = float_to_bfloat16(narrow_to_odd(static_cast<double>(value)));
  } else if constexpr (std::same_as<To, Boolean>) {
    out.bits = static_cast<std::uint8_t>(value);
    return value == 0 || value == 1;
  } else {
    out = static_cast<To>(value);
    if constexpr (std::integral<To>) return fits<To>(value);
  }
  return true;
}

/// Calls f.operator()<T>() for the elements of a file type.
template <class F>
void dispatch(Type type, F&& f) {
  switch (type) {
    case Type::Bool:
      return f.template operator()<Boolean>();
    case Type::U8:
      return f.template operator()<std::uint8_t>();
    case Type::I8:
      return f.template operator()<std::int8_t>();
    case Type::F16:
      return f.template operator()<Half>();
    case Type::BF16:
      return f.template operator()<Brain>();
    case Type::I32:
      return f.template operator()<std::int32_t>();
    case Type::F32:
      return f.template operator()<float>();
    case Type::I64:
      return f.template operator()<std::int64_t>();
    case Type::F64:
      return f.template operator()<double>();
  }
}

/// 1 MiB of the widest type: long enough to be worth a thread.
constexpr std::int64_t Chunk = 1 << 17;

template <class From, class To>
void decode(const std::byte* from, std::span<To> to, const std::string& where) {
  const auto size = static_cast<std::int64_t>(to.size());
  parallel_for(size, Chunk, [&](std::int64_t begin, std::int64_t end) {
    if constexpr (std::same_as<From, To> && std::endian::native == std::endian::little) {
      std::memcpy(to.data() + begin, from + begin * static_cast<std::int64_t>(sizeof(To)),
                  static_cast<std::size_t>(end - begin) * sizeof(To));
    } else {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto value = widen(load<From>(from + i * static_cast<std::int64_t>(sizeof(From))));
        if constexpr (std::integral<To>) {
          STEADY_CHECK(IoError, fits<To>(value), "safetensors: {}: {} does not fit {}", where,
                       value, to_string(steady::dtype_of<To>));
        }
        to[static_cast<std::size_t>(i)] = static_cast<To>(value);
      }
    }
  });
}

template <class To, class From>
void encode(std::span<const From> from, std::byte* to, const std::string& where) {
  const auto size = static_cast<std::int64_t>(from.size());
  constexpr auto Width = static_cast<std::int64_t>(sizeof(To));
  parallel_for(size, Chunk, [&](std::int64_t begin, std::int64_t end) {
    if constexpr (std::same_as<From, To> && std::endian::native == std::endian::little) {
      std::memcpy(to + begin * Width, from.data() + begin,
                  static_cast<std::size_t>(end - begin) * sizeof(To));
    } else {
      for (std::int64_t i = begin; i < end; ++i) {
        To value{};
        const From given = from[static_cast<std::size_t>(i)];
        STEADY_CHECK(Error, narrow(given, value), "safetensors: {}: {} does not fit its type",
                     where, given);
        store(value, to + i * Width);
      }
    }
  });
}

}  // namespace

void decode_elements(std::span<const std::byte> from, Type type, Tensor& to,
                     const std::string& where) {
  dispatch(type, [&]<class From>() {
    dispatch_all(to.dtype(), [&]<class To>() {
      if constexpr (Real<From> == Real<To>) {
        decode<From>(from.data(), to.mutable_data<To>("safetensors"), where);
      } else {
        throw IoError(fmt::format("safetensors: {}: {} cannot become {}", where, to_string(type),
                                  to_string(to.dtype())));
      }
    });
  });
}

void encode_elements(const Tensor& from, Type type, std::span<std::byte> to,
                     const std::string& where) {
  dispatch_all(from.dtype(), [&]<class From>() {
    dispatch(type, [&]<class To>() {
      if constexpr (Real<From> == Real<To>) {
        encode<To>(from.data<From>(), to.data(), where);
      } else {
        throw Error(fmt::format("safetensors: {}: {} cannot become {}", where,
                                to_string(from.dtype()), to_string(type)));
      }
    });
  });
}

}  // namespace steady::safetensors
