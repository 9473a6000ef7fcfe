#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/tensor.hpp>
#include <vector>

#include "tests/support/sanitizer.hpp"

namespace steady {
namespace {

using testing::ElementsAre;

TEST(Tensor, HandlesShareAndCopiesDoNot) {
  Tensor a = Tensor::of({2, 2}, {1, 2, 3, 4});
  Tensor shared = a;
  Tensor copy = a.detached_copy();
  shared.mutable_data<float>()[0] = 9;
  EXPECT_EQ(a.data<float>()[0], 9);
  EXPECT_EQ(copy.data<float>()[0], 1);
  EXPECT_TRUE(a.shares_storage_with(shared));
  EXPECT_FALSE(a.shares_storage_with(copy));
}

TEST(Tensor, ConvertsByName) {
  const Tensor t = Tensor::of({3}, {1.5, -2.5, 3}, Dtype::F64);
  EXPECT_THAT(t.detached_copy(Dtype::F32).data<float>(), ElementsAre(1.5F, -2.5F, 3.0F));
  EXPECT_THAT(t.detached_copy(Dtype::I64).data<std::int64_t>(), ElementsAre(1, -2, 3));
}

TEST(Tensor, WrongUseThrowsAndNamesTheTensor) {
  const Tensor t = Tensor::zeros({2, 3});
  EXPECT_THROW((void)t.data<double>(), ShapeError);
  EXPECT_THROW((void)t.item(), ShapeError);
  EXPECT_THROW((void)Tensor().shape(), ShapeError);
  EXPECT_THROW((void)Tensor::of({2}, {1, 2, 3}), ShapeError);
  EXPECT_THROW(Tensor::zeros({2}, Dtype::I64).set_requires_grad(), ShapeError);
  EXPECT_THROW(Tensor::zeros({2}).copy_from(Tensor::zeros({3})), ShapeError);
  EXPECT_EQ(Tensor::scalar(2.5).item(), 2.5);
}

TEST(Tensor, EveryWriteRaisesTheVersion) {
  Tensor t = Tensor::zeros({2});
  const std::uint64_t start = t.storage().version();
  (void)t.data<float>();
  EXPECT_EQ(t.storage().version(), start);
  (void)t.mutable_data<float>("test");
  EXPECT_EQ(t.storage().version(), start + 1);
  EXPECT_STREQ(t.storage().writer(), "test");
  t.copy_from(Tensor::ones({2}));
  EXPECT_EQ(t.storage().version(), start + 2);
}

TEST(Storage, BlocksAreAlignedCountedAndReused) {
  trim_memory();
  const MemoryStats start = memory_stats();
  {
    const Tensor small = Tensor::empty({3});
    const Tensor big = Tensor::empty({3 << 20});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small.data<float>().data()) % 64, 0U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(big.data<float>().data()) % 64, 0U);
    EXPECT_EQ(memory_stats().live - start.live, 12 + (12 << 20));
    EXPECT_EQ(memory_stats().live_blocks - start.live_blocks, 2);
  }
  EXPECT_EQ(memory_stats().live, start.live);
  const std::int64_t mapped = memory_stats().mapped;
  if (!test::under_address_sanitizer()) {
    for (int i = 0; i < 5; ++i) (void)Tensor::empty({3 << 20});
    EXPECT_EQ(memory_stats().mapped, mapped);
    EXPECT_GE(memory_stats().cached, 12 << 20);
  }
  reset_peak_memory();
  EXPECT_EQ(memory_stats().peak, memory_stats().live);
  trim_memory();
  EXPECT_EQ(memory_stats().cached, 0);
  EXPECT_GE(mapped, start.mapped);
}

TEST(Storage, PoisonMakesUnwrittenElementsShow) {
  const PoisonMemory poison;
  const Tensor single = Tensor::empty({100});
  const Tensor twice = Tensor::empty({100}, Dtype::F64);
  for (const float v : single.data<float>()) EXPECT_TRUE(std::isnan(v));
  for (const double v : twice.data<double>()) EXPECT_TRUE(std::isnan(v));
}

TEST(Storage, SizesFromBytesToManyMegabytesSurviveWriting) {
  for (std::int64_t n = 1; n < 40'000'000; n = n * 3 + 1) {
    Tensor t = Tensor::empty({n});
    const auto data = t.mutable_data<float>();
    data.front() = 1;
    data.back() = 2;
    EXPECT_EQ(data.back(), 2);
  }
}

}  // namespace
}  // namespace steady
