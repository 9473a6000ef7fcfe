#include <steadygrad/core/random.hpp>

#include <cmath>
#include <numbers>
#include <steadygrad/core/error.hpp>

namespace steady {
namespace {

constexpr std::uint32_t Multiplier0 = 0xD2511F53;
constexpr std::uint32_t Multiplier1 = 0xCD9E8D57;
constexpr std::uint32_t Weyl0 = 0x9E3779B9;
constexpr std::uint32_t Weyl1 = 0xBB67AE85;

/// FNV-1a, then the 64-bit finaliser of splitmix64: distinct names get unrelated keys.
std::uint64_t mix(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  std::uint64_t z = hash + seed * 0x9E3779B97F4A7C15ULL + 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

}  // namespace

Random::Random(std::uint64_t seed, std::string_view name) {
  const std::uint64_t key = mix(seed, name);
  key_ = {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

std::array<std::uint32_t, 4> Random::block(std::uint64_t index) const {
  std::array<std::uint32_t, 4> c{static_cast<std::uint32_t>(index),
                                 static_cast<std::uint32_t>(index >> 32), 0, 0};
  std::array<std::uint32_t, 2> k = key_;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{Multiplier0} * c[0];
    const std::uint64_t p1 = std::uint64_t{Multiplier1} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p0)};
    k[0] += Weyl0;
    k[1] += Weyl1;
  }
  return c;
}

std::uint32_t Random::word(std::uint64_t index) const { return block(index / 4)[index % 4]; }

void Random::words(std::uint64_t first, std::span<std::uint32_t> out) const {
  constexpr std::size_t Lanes = 32;  // blocks side by side, so that the rounds run in vectors
  std::size_t at = 0;
  while (at < out.size() && (first + at) % 4 != 0) {
    out[at] = word(first + at);
    ++at;
  }
  for (; at + 4 * Lanes <= out.size(); at += 4 * Lanes) {
    std::array<std::array<std::uint32_t, Lanes>, 4> c{};
    for (std::size_t i = 0; i < Lanes; ++i) {
      const std::uint64_t index = (first + at) / 4 + i;
      c[0][i] = static_cast<std::uint32_t>(index);
      c[1][i] = static_cast<std::uint32_t>(index >> 32);
    }
    std::array<std::uint32_t, 2> k = key_;
    for (int round = 0; round < 10; ++round) {
      for (std::size_t i = 0; i < Lanes; ++i) {
        const std::uint64_t p0 = std::uint64_t{Multiplier0} * c[0][i];
        const std::uint64_t p1 = std::uint64_t{Multiplier1} * c[2][i];
        c[0][i] = static_cast<std::uint32_t>(p1 >> 32) ^ c[1][i] ^ k[0];
        c[1][i] = static_cast<std::uint32_t>(p1);
        c[2][i] = static_cast<std::uint32_t>(p0 >> 32) ^ c[3][i] ^ k[1];
        c[3][i] = static_cast<std::uint32_t>(p0);
      }
      k[0] += Weyl0;
      k[1] += Weyl1;
    }
    for (std::size_t i = 0; i < Lanes; ++i) {
      for (std::size_t j = 0; j < 4; ++j) out[at + 4 * i + j] = c[j][i];
    }
  }
  for (; at < out.size(); ++at) out[at] = word(first + at);
}

std::uint32_t Random::next_u32() {
  if (position_ % 4 == 0) current_ = block(position_ / 4);
  return current_[position_++ % 4];
}

std::uint64_t Random::next_u64() {
  const std::uint64_t high = next_u32();
  return high << 32 | next_u32();
}

double Random::uniform() { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }

double Random::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_normal_;
  }
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  const double angle = 2.0 * std::numbers::pi * uniform();
  spare_normal_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

std::int64_t Random::below(std::int64_t n) {
  STEADY_CHECK(Error, n >= 1 && n <= (std::int64_t{1} << 32),
               "Random::below: needs 1 to 2^32; got {}", n);
  return static_cast<std::int64_t>(
      uniform_below(static_cast<std::uint64_t>(n), [this] { return next_u32(); }));
}

std::vector<std::int64_t> Random::permutation(std::int64_t n) {
  return random_permutation(n, [this] { return next_u32(); });
}

}  // namespace steady
