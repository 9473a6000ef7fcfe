#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace steady {

/// A uniform integer in [0, n) from a source of uniform 32-bit words, without bias: values at and
/// above the largest multiple of n are rejected. n in 1 .. 2^32.
template <class Source>
[[nodiscard]] std::uint64_t uniform_below(std::uint64_t n, Source&& next_u32) {
  constexpr std::uint64_t Range = std::uint64_t{1} << 32;
  const std::uint64_t limit = Range - Range % n;
  std::uint64_t value = next_u32();
  while (value >= limit) value = next_u32();
  return value % n;
}

/// 0 .. n-1 in random order: Fisher-Yates from the top.
template <class Source>
[[nodiscard]] std::vector<std::int64_t> random_permutation(std::int64_t n, Source&& next_u32) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<std::size_t>(uniform_below(i, next_u32))]);
  }
  return order;
}

/// Counter-based random numbers keyed by (seed, name)          [Philox4x32-10: Salmon et al. 2011]
/// A stream depends on its key alone: what other streams consume changes nothing, and streams of
/// different names are independent. Integers and uniforms are the same on every machine; normals
/// to the last place of the C library's log, sin and cos.
class Random {
 public:
  Random(std::uint64_t seed, std::string_view name);

  [[nodiscard]] std::uint32_t next_u32();
  [[nodiscard]] std::uint64_t next_u64();
  /// Uniform in [0, 1), 53 bits.
  [[nodiscard]] double uniform();
  [[nodiscard]] double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Standard normal (Box-Muller).
  [[nodiscard]] double normal();
  /// Uniform in [0, n); throws Error unless 1 <= n <= 2^32.
  [[nodiscard]] std::int64_t below(std::int64_t n);
  [[nodiscard]] std::vector<std::int64_t> permutation(std::int64_t n);

  /// Uniform 32-bit word number `index` of the stream, independent of the words drawn so far: for
  /// parallel filling.
  [[nodiscard]] std::uint32_t word(std::uint64_t index) const;
  /// out[i] = word(first + i), several times faster than one by one.
  void words(std::uint64_t first, std::span<std::uint32_t> out) const;

 private:
  [[nodiscard]] std::array<std::uint32_t, 4> block(std::uint64_t index) const;

  std::array<std::uint32_t, 2> key_{};
  std::array<std::uint32_t, 4> current_{};
  std::uint64_t position_ = 0;
  double spare_normal_ = 0.0;
  bool has_spare_ = false;
};

}  // namespace steady
