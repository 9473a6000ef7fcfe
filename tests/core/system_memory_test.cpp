// Where the caching allocator gets its blocks from.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <steadygrad/core/system_memory.hpp>
#include <steadygrad/core/tensor.hpp>
#include <vector>

#include "tests/support/sanitizer.hpp"

namespace steady {
namespace {

using detail::give_to_system;
using detail::take_from_system;

constexpr std::size_t KiB = 1024, MiB = KiB * KiB;

bool holds(const void* block, std::size_t bytes, unsigned char value) {
  const auto* begin = static_cast<const unsigned char*>(block);
  return std::all_of(begin, begin + bytes, [=](unsigned char c) { return c == value; });
}

TEST(SystemMemory, BlocksOfEverySizeAreAlignedAndApart) {
  struct Block {
    void* place;
    std::size_t bytes;
    unsigned char value;
  };
  std::vector<Block> blocks;
  unsigned char value = 0;
  for (int round = 0; round < 5; ++round)
    for (const std::size_t bytes : {std::size_t{64}, 4 * KiB, 64 * KiB - 64, 64 * KiB,
                                    96 * KiB + 64, MiB, 8 * MiB, 8 * MiB + 64, 10 * MiB}) {
      void* place = take_from_system(bytes);
      ASSERT_NE(place, nullptr) << bytes;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(place) % detail::Alignment, 0U) << bytes;
      std::memset(place, ++value, bytes);
      blocks.push_back({place, bytes, value});
    }
  for (const Block& b : blocks) EXPECT_TRUE(holds(b.place, b.bytes, b.value)) << b.bytes;
  for (const Block& b : blocks) (void)give_to_system(b.place, b.bytes);
}

TEST(SystemMemory, NeighboursStartAtDifferentPlacesOfAPage) {
  if (test::under_address_sanitizer()) GTEST_SKIP() << "every block is malloc's own";
  for (const std::size_t bytes : {64 * KiB, MiB, 8 * MiB, 16 * MiB}) {
    std::vector<void*> blocks;
    std::set<std::uintptr_t> places;
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(take_from_system(bytes));
      places.insert(reinterpret_cast<std::uintptr_t>(blocks.back()) % 4096);
    }
    EXPECT_EQ(places.size(), blocks.size()) << bytes;
    for (void* block : blocks) (void)give_to_system(block, bytes);
  }
}

TEST(SystemMemory, APlaceThatStaysTakenHasNoMemoryAndCanBeUsed) {
  if (test::under_address_sanitizer()) GTEST_SKIP() << "every block is malloc's own";
  constexpr std::size_t Bytes = MiB, Page = 65536;  // the largest of any system
  auto* block = static_cast<std::byte*>(take_from_system(Bytes));
  auto* next = static_cast<std::byte*>(take_from_system(Bytes));
  std::memset(block, 1, Bytes);
  std::memset(next, 2, Bytes);
  ASSERT_FALSE(give_to_system(block, Bytes));
  EXPECT_TRUE(holds(block + Page, Bytes - 2 * Page, 0));
  EXPECT_TRUE(holds(next, Bytes, 2));
  std::memset(block, 3, Bytes);
  EXPECT_TRUE(holds(next, Bytes, 2));
  EXPECT_FALSE(give_to_system(block, Bytes));
  EXPECT_FALSE(give_to_system(next, Bytes));
}

TEST(SystemMemory, TensorsUseATrimmedPlaceAgain) {
  if (test::under_address_sanitizer()) GTEST_SKIP() << "nothing is cached";
  constexpr std::int64_t Elements = 300'000;
  const void* place = Tensor::ones({Elements}).data<float>().data();
  trim_memory();
  EXPECT_EQ(memory_stats().cached, 0);
  const std::int64_t mapped = memory_stats().mapped;
  const Tensor again = Tensor::ones({Elements});
  EXPECT_EQ(again.data<float>().data(), place);
  EXPECT_GT(memory_stats().mapped, mapped);
  const auto values = again.data<float>();
  EXPECT_TRUE(std::ranges::all_of(values, [](float v) { return v == 1.0F; }));
}

}  // namespace
}  // namespace steady
