#include <steadygrad/layers/norm/scaling.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <steadygrad/core/data/batches.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/column_map.hpp>
#include <steadygrad/layers/sequential.hpp>

#include "tests/layers/norm/norm_testing.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace norm_testing;
using namespace testing_support;
using norm_testing::values;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double Nan = std::numeric_limits<double>::quiet_NaN();
constexpr double Infinity = std::numeric_limits<double>::infinity();

const bool Table = register_ops(
    "ColumnMap",
    {{.name = "shift_scale_gain_offset",
      .f =
          [](Inputs in) {
            return column_map(
                in[0], Tensor::of({4, 3}, {1, -2, 0, 2, 0.5, 3, 1, 2, 1, 0, 1, -4}, Dtype::F64));
          },
      .inputs = {real({2, 2, 3})},
      .large = {real({20000, 3})}}});

/// Rows x features of quite different places and scales.
Tensor data(Dtype dtype = Dtype::F64, std::int64_t rows = 301) {
  Tensor x = Tensor::empty({rows, 4}, Dtype::F64);
  Random random(3, "data");
  const double mean[] = {0, 1e4, -3, 1e-3}, spread[] = {1, 1, 1e3, 1e-5};
  std::size_t i = 0;
  for (double& v : x.mutable_data<double>()) {
    v = mean[i % 4] + spread[i % 4] * random.normal();
    ++i;
  }
  return x.detached_copy(dtype);
}

/// Largest minus smallest value of a column.
double extent_of(const Tensor& x, std::size_t column) {
  double low = Infinity, high = -Infinity;
  const std::vector<double> all = values(x);
  for (std::size_t i = column; i < all.size(); i += 4) {
    low = std::min(low, all[i]);
    high = std::max(high, all[i]);
  }
  return high - low;
}

/// The rows cut at the given places.
std::vector<Tensor> cut(const Tensor& x, std::initializer_list<std::int64_t> places) {
  std::vector<Tensor> parts;
  std::int64_t from = 0;
  for (const std::int64_t to : places) {
    parts.push_back(slice(x, 0, from, to));
    from = to;
  }
  parts.push_back(slice(x, 0, from, x.dim(0)));
  return parts;
}

template <class T>
class Scaling : public testing::Test {};
using Kinds = testing::Types<MinMaxScale, Standardize, RobustScale>;
TYPED_TEST_SUITE(Scaling, Kinds);

TYPED_TEST(Scaling, InverseOfForwardIsTheDataToItsRounding) {
  for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
    const Tensor x = data(dtype);
    TypeParam scale({.features = 4});
    scale.fit(x);
    const Tensor back = scale.inverse(scale(x));
    ASSERT_EQ(back.dtype(), dtype);
    std::vector<double> extent;
    for (std::size_t c = 0; c < 4; ++c) extent.push_back(extent_of(x, c));
    const double ulp = dtype == Dtype::F64 ? 0x1p-52 : 0x1p-23;
    const std::vector<double> got = values(back), want = values(x);
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i], want[i], ulp * (std::abs(want[i]) + 2 * extent[i % 4])) << i;
    }
  }
}

TYPED_TEST(Scaling, ForwardBeforeAFitThrows) {
  TypeParam scale({.features = 4});
  EXPECT_FALSE(scale.fitted());
  EXPECT_THAT(message_of([&] { (void)scale(data()); }), HasSubstr("not fitted yet"));
  EXPECT_THAT(message_of([&] { (void)scale.inverse(data()); }), HasSubstr("not fitted yet"));
  EXPECT_THAT(message_of([&] { scale.fit(std::vector<Tensor>()); }), HasSubstr("at least one row"));
  EXPECT_THAT(message_of([&] { scale.fit(Tensor::zeros({0, 4})); }), HasSubstr("at least one row"));
  EXPECT_THAT(scale.describe(), HasSubstr("not fitted"));
  scale.fit(data());
  EXPECT_TRUE(scale.fitted());
  EXPECT_THAT(scale.describe(), HasSubstr("fitted to 301 rows"));
}

TYPED_TEST(Scaling, AStateCarriesIt) {
  Sequential model, other;
  auto& scale = model.add<TypeParam>("scale", {.features = 4});
  other.add<TypeParam>("scale", {.features = 4});
  for (Sequential* m : {&model, &other}) m->add<Linear>("fc", {.in = 4, .out = 2});
  model.initialize(1);
  scale.fit(data(Dtype::F32));
  other.load(model.state());
  EXPECT_TRUE(same_bits(other(data(Dtype::F32)), model(data(Dtype::F32))));
  EXPECT_TRUE(same_bits((*clone(model))(data(Dtype::F32)), model(data(Dtype::F32))));
  model.initialize(1);  // resets buffers
  EXPECT_FALSE(scale.fitted());
}

TYPED_TEST(Scaling, NanIsLeftOutAndStaysAndIsReported) {
  const Tensor x =
      Tensor::of({5, 3}, {1, 7, Nan, 2, Nan, Nan, 3, 7, Nan, Nan, 7, Nan, 4, 7, Nan}, Dtype::F64);
  TypeParam with({.features = 3}), without({.features = 3});
  with.fit(x);
  without.fit(Tensor::of({4, 3}, {1, 7, 0, 2, 7, 1, 3, 7, 2, 4, 7, 3}, Dtype::F64));
  const Tensor probe = Tensor::of({2, 3}, {1.5, 9, 1, Nan, Nan, 1}, Dtype::F64);
  const std::vector<double> y = values(with(probe)), z = values(without(probe));
  EXPECT_DOUBLE_EQ(y[0], z[0]);
  EXPECT_DOUBLE_EQ(y[1], 2);
  for (const std::size_t i : {2U, 3U, 4U, 5U}) EXPECT_TRUE(std::isnan(y[i])) << i;
  const ScaleReport report = with.report();
  EXPECT_EQ(report.rows, 5);
  EXPECT_THAT(report.missing, ElementsAre(ScaleReport::Missing{0, 1}, ScaleReport::Missing{1, 1},
                                          ScaleReport::Missing{2, 5}));
  EXPECT_THAT(report.empty, ElementsAre(2));
  EXPECT_THAT(report.constant, ElementsAre(1));
  EXPECT_EQ(to_string(report),
            "5 rows; NaN left out: features 0 (1), 1 (1), 2 (5); nothing but NaN, gives NaN: "
            "features 2; constant, divided by 1: features 1");
}

TYPED_TEST(Scaling, AnInfinityOrAWrongShapeIsRefusedAndNothingChanges) {
  TypeParam scale({.features = 4});
  scale.fit(data());
  const Tensor before = scale(data());
  Tensor bad = data();
  bad.mutable_data<double>()[4 * 7 + 2] = -Infinity;
  EXPECT_THAT(message_of([&] {
                scale.fit(std::array{data(Dtype::F32), bad});
              }),
              HasSubstr("feature 2 of row 7 is -inf"));
  EXPECT_THROW(scale.fit(Tensor::zeros({3, 5})), ShapeError);
  EXPECT_THROW(scale.fit(Tensor::zeros({3, 4}, Dtype::I64)), ShapeError);
  EXPECT_THROW((void)scale(Tensor::zeros({3, 5})), ShapeError);
  EXPECT_TRUE(same_bits(scale(data()), before));
  EXPECT_THROW(TypeParam({.features = 0}), Error);
}

TYPED_TEST(Scaling, HowTheDataAreCutChangesAtMostRounding) {
  for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
    const Tensor x = data(dtype);
    TypeParam whole({.features = 4}), parts({.features = 4});
    whole.fit(x);
    parts.fit(cut(x, {1, 1, 64, 65, 300}));
    const Tensor a = whole(data(Dtype::F64)), b = parts(data(Dtype::F64));
    if constexpr (std::is_same_v<TypeParam, Standardize>) {
      expect_values(b, values(a), dtype == Dtype::F64 ? 1e-11 : 1e-6);  // an ulp of 1e4
    } else {
      EXPECT_TRUE(same_bits(a, b));
    }
  }
}

TYPED_TEST(Scaling, TakesBatchesOfADataSetAndEveryRank) {
  const Tensor x = data(Dtype::F32, 64);
  const Dataset set{.x = x, .y = Tensor::zeros({64}, Dtype::I64)};
  TypeParam rows({.features = 4}), stream({.features = 4}), grid({.features = 4});
  rows.fit(x);
  stream.fit(batches(set, {.size = 64, .shuffle = false}));
  grid.fit(reshape(x, {4, 4, 4, 4}));
  EXPECT_TRUE(same_bits(rows(x), stream(x)));
  EXPECT_TRUE(same_bits(rows(x), grid(x)));
  EXPECT_EQ(grid(reshape(x, {4, 4, 4, 4})).shape(), (Shape{4, 4, 4, 4}));
}

TYPED_TEST(Scaling, WorksInAConvertedModel) {
  TypeParam scale({.features = 4});
  scale.fit(data(Dtype::F32));
  const Tensor before = scale(data(Dtype::F32));
  scale.to(Dtype::F32);
  // Of feature 1, at 1e4 with spread 1, float32 keeps the place to 5e-4.
  expect_values(scale(data(Dtype::F32)), values(before), 1e-3);
  scale.fit(data(Dtype::F32));
  EXPECT_TRUE(scale.fitted());
}

TEST(MinMaxScale, FillsItsRangeExactly) {
  MinMaxScale scale({.features = 4, .low = -1, .high = 3});
  scale.fit(data());
  const Tensor y = scale(data());
  for (int c = 0; c < 4; ++c) {
    const Tensor column = slice(y, 1, c, c + 1);
    EXPECT_EQ(max(column).item(), 3);
    EXPECT_EQ(max(-column).item(), 1);
  }
}

TEST(MinMaxScale, ClipsOnlyWhenAsked) {
  const Tensor x = Tensor::of({3, 1}, {10, 20, 15}, Dtype::F64);
  const Tensor beyond = Tensor::of({2, 1}, {0, 30}, Dtype::F64);
  MinMaxScale open({.features = 1}), clipped({.features = 1, .clip = true});
  open.fit(x);
  clipped.fit(x);
  EXPECT_THAT(values(open(beyond)), ElementsAre(-1, 2));
  EXPECT_THAT(values(clipped(beyond)), ElementsAre(0, 1));
  EXPECT_THAT(values(clipped.inverse(clipped(beyond))), ElementsAre(10, 20));
  EXPECT_THROW(MinMaxScale({.features = 1, .low = 1, .high = 1}), Error);
}

TEST(MinMaxScale, AConstantFeatureBecomesTheLowEnd) {
  MinMaxScale scale({.features = 1, .low = 2, .high = 5});
  scale.fit(Tensor::full({9, 1}, 14.62));
  EXPECT_THAT(values(scale(Tensor::full({1, 1}, 14.62))), ElementsAre(2));
  EXPECT_THAT(scale.report().constant, ElementsAre(0));
}

TEST(Standardize, GivesMeanZeroAndVarianceOneFarFromTheOrigin) {
  for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
    Standardize scale({.features = 4});
    scale.fit(data(dtype, 4096));
    const Tensor y = scale(data(dtype, 4096)).detached_copy(Dtype::F64);
    const double tolerance = dtype == Dtype::F64 ? 1e-11 : 1e-6;
    for (const double m : values(mean(y, 0))) EXPECT_NEAR(m, 0, tolerance);
    for (const double v : values(var(y, 0, {.unbiased = false}))) EXPECT_NEAR(v, 1, 2 * tolerance);
  }
}

TEST(Standardize, ConstantFeaturesOfEveryValueBecomeExactlyZero) {
  for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
    for (const double value : {14.62, 0.0, -1e-30, 1e8, 1.0 / 3}) {
      Standardize scale({.features = 1});
      scale.fit(Tensor::full({1000, 1}, value, dtype));
      EXPECT_EQ(scale(Tensor::full({1, 1}, value, dtype)).item(), 0) << value;
      EXPECT_THAT(scale.report().constant, ElementsAre(0));
    }
  }
}

TEST(Standardize, ASmallSpreadIsASpread) {
  // Two values a billionth apart are no constant: their deviation is half their distance.
  Standardize scale({.features = 1});
  const Tensor x = Tensor::of({4, 1}, {1, 1 + 1e-9, 1, 1 + 1e-9}, Dtype::F64);
  scale.fit(x);
  EXPECT_TRUE(scale.report().clean());
  expect_values(scale(x), {-1, 1, -1, 1}, 1e-6);
}

TEST(Standardize, PartialFitsAreOneFitAndGoOnAfterALoad) {
  const Tensor x = data();
  Standardize whole({.features = 4}), first({.features = 4}), second({.features = 4});
  whole.fit(x);
  const std::vector<Tensor> parts = cut(x, {100, 250});
  first.partial_fit(parts[0]);
  first.partial_fit(parts[1]);
  second.load(first.state());
  second.partial_fit(parts[2]);
  EXPECT_EQ(second.rows.item(), 301);
  expect_values(second(x), values(whole(x)), 1e-12);
  second.fit(parts[0]);  // forgets
  EXPECT_EQ(second.rows.item(), 100);
}

TEST(Standardize, LargeFloat32ValuesDoNotOverflow) {
  Standardize scale({.features = 1});
  const Tensor x = Tensor::of({4, 1}, {1e30, -1e30, 3e30, 1e30});
  scale.fit(x);
  EXPECT_NEAR(values(scale(x))[0], 0, 1e-6);
  EXPECT_NEAR(values(scale(x))[2], std::sqrt(2.0), 1e-6);
}

TEST(Standardize, ShiftAndDivisionCanBeLeftOut) {
  const Tensor x = Tensor::of({2, 1}, {4, 8}, Dtype::F64);
  Standardize shift({.features = 1, .with_std = false}), scale({.features = 1, .with_mean = false});
  shift.fit(x);
  scale.fit(x);
  EXPECT_THAT(values(shift(x)), ElementsAre(-2, 2));
  EXPECT_THAT(values(scale(x)), ElementsAre(2, 4));
}

TEST(RobustScale, QuantilesAreLinearBetweenNeighbours) {
  RobustScale scale({.features = 2});
  // NumPy: quantile 0.25, 0.5, 0.75 of {1, 2, 4, 8} = 1.75, 3, 5; of {5, 6, 7, 9} = 5.75, 6.5, 7.5
  scale.fit(Tensor::of({4, 2}, {8, 7, 1, 5, 4, 9, 2, 6}, Dtype::F64));
  EXPECT_THAT(values(scale.center), ElementsAre(3, 6.5));
  EXPECT_THAT(values(scale.scale), ElementsAre(3.25, 1.75));
  EXPECT_THAT(values(scale(Tensor::of({1, 2}, {6.25, 3}, Dtype::F64))), ElementsAre(1, -2));
  RobustScale all({.features = 1, .low_quantile = 0, .high_quantile = 1});
  all.fit(Tensor::of({3, 1}, {1, 9, 2}, Dtype::F64));
  EXPECT_THAT(values(all.scale), ElementsAre(8));
  EXPECT_THROW(RobustScale({.features = 1, .low_quantile = 0.5, .high_quantile = 0.5}), Error);
}

TEST(RobustScale, OneOutlierMovesNothing) {
  Tensor x = data();
  RobustScale clean({.features = 4}), dirty({.features = 4});
  clean.fit(x);
  const double largest = max(slice(x, 1, 0, 1)).item();
  for (double& v : x.mutable_data<double>()) v = v == largest ? 1e12 : v;
  dirty.fit(x);
  EXPECT_EQ(values(clean.center), values(dirty.center));
  EXPECT_EQ(values(clean.scale), values(dirty.scale));
}

TEST(RobustScale, AFeatureThatIsMostlyOneValueIsSaid) {
  RobustScale scale({.features = 1});
  const Tensor x = Tensor::of({8, 1}, {0, 0, 0, 0, 0, 0, 0, 5}, Dtype::F64);
  scale.fit(x);
  EXPECT_THAT(scale.report().unspread, ElementsAre(0));
  EXPECT_TRUE(scale.report().constant.empty());
  EXPECT_THAT(values(scale(Tensor::of({1, 1}, {5}, Dtype::F64))), ElementsAre(5));
}

TEST(DataScale, GradientsPassThroughIt) {
  Standardize scale({.features = 4});
  scale.fit(data());
  const Tensor x = data(Dtype::F64, 3).set_requires_grad();
  const Tensor dy = noise({3, 4}, "dy");
  const Gradients g = gradients([&] { return scale(x); }, dy);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(values(g[x])[i] * std::sqrt(values(scale.var)[i % 4]), values(dy)[i], 1e-12);
  }
}

}  // namespace
}  // namespace steady
