#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/elementwise.hpp>

#include "kernel_test.hpp"

namespace steady::kernels {
namespace {

using test::random_values;
using test::same_bits;
using test::unwritten;
using Dims = std::vector<std::int64_t>;

std::int64_t numel(const Dims& dims) {
  std::int64_t n = 1;
  for (const std::int64_t d : dims) n *= d;
  return n;
}

/// Element of an operand for the index-th element of the result, by the definition of broadcasting.
std::int64_t source(const Dims& result, const Dims& operand, std::int64_t index) {
  std::int64_t at = 0;
  std::int64_t step = 1;
  for (std::size_t k = 0; k < result.size(); ++k) {
    const std::int64_t position = index % result[result.size() - 1 - k];
    index /= result[result.size() - 1 - k];
    if (k >= operand.size()) continue;
    const std::int64_t extent = operand[operand.size() - 1 - k];
    at += (extent == 1 ? 0 : position) * step;
    step *= extent;
  }
  return at;
}

struct Pair {
  Dims a, b, y;
};
const std::vector<Pair> Pairs = {
    {{7}, {7}, {7}},
    {{3, 37}, {3, 37}, {3, 37}},
    {{5, 33}, {}, {5, 33}},
    {{}, {5, 33}, {5, 33}},
    {{4, 5, 33}, {33}, {4, 5, 33}},
    {{33}, {4, 5, 33}, {4, 5, 33}},
    {{4, 5, 3}, {4, 5, 1}, {4, 5, 3}},
    {{4, 1, 3}, {5, 1}, {4, 5, 3}},
    {{2, 1, 3, 1, 2}, {4, 1, 5, 2}, {2, 4, 3, 5, 2}},
    {{1, 2, 1, 2, 1, 2, 1, 2}, {2, 1, 2, 1, 2, 1, 2, 1}, {2, 2, 2, 2, 2, 2, 2, 2}},
    {{1, 1}, {1}, {1, 1}},
    {{0, 3}, {3}, {0, 3}},
    {{2, 1}, {2, 0}, {2, 0}},
    {{3, 1, 2049, 9}, {7, 1, 1}, {3, 7, 2049, 9}},
};

double apply(Binary op, double a, double b) {
  switch (op) {
    case Binary::Add:
      return a + b;
    case Binary::Sub:
      return a - b;
    case Binary::Mul:
      return a * b;
    case Binary::Div:
      return a / b;
    case Binary::Pow:
      return std::pow(a, b);
    case Binary::Maximum:
      return std::max(a, b);
    case Binary::Minimum:
      return std::min(a, b);
  }
  return 0;
}

template <class T>
void expect_binary(Binary op, const Pair& p) {
  const auto a = random_values<T>(numel(p.a), 1, 0.25, 3);
  const auto b = random_values<T>(numel(p.b), 2, 0.25, 3);
  auto y = unwritten<T>(numel(p.y));
  binary<T>(op, make_broadcast({p.a, p.b}), a, b, y);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const auto va = a[static_cast<std::size_t>(source(p.y, p.a, at))];
    const auto vb = b[static_cast<std::size_t>(source(p.y, p.b, at))];
    const double want = apply(op, static_cast<double>(va), static_cast<double>(vb));
    ASSERT_EQ(y[i], static_cast<T>(want)) << name(op) << " element " << i;  // correctly rounded
  }
}

TEST(BinaryKernel, BroadcastsLikeNumpy) {
  for (const Binary op : {Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Pow,
                          Binary::Maximum, Binary::Minimum}) {
    for (const Pair& p : Pairs) {
      if (op != Binary::Add && numel(p.y) > 10000) continue;
      expect_binary<float>(op, p);
      expect_binary<double>(op, p);
    }
  }
}

TEST(BinaryKernel, PlansMergeAxes) {
  EXPECT_TRUE(make_broadcast({Dims{2, 1, 3}, Dims{2, 1, 3}}).same_shape());
  EXPECT_TRUE(make_broadcast({Dims{}, Dims{1, 1}}).same_shape());
  EXPECT_EQ(make_broadcast({Dims{2, 3, 4}, Dims{4}}).rank, 2);
  EXPECT_EQ(make_broadcast({Dims{2, 3, 4}, Dims{2, 3, 1}}).rank, 2);
  EXPECT_EQ(make_broadcast({Dims{2, 3, 4}, Dims{}}).rank, 1);
  EXPECT_EQ(make_broadcast({Dims{2, 3, 4}, Dims{2, 1, 4}}).rank, 3);
}

TEST(BinaryKernel, ErrorsNameTheOperationAndTheShapes) {
  try {
    (void)make_broadcast({Dims{2, 3}, Dims{2}}, "mul");
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(),
                 "mul: shapes must broadcast (equal or 1, from the last axis); got [2, 3], [2]");
  }
  std::vector<float> x(6);
  EXPECT_THROW(
      binary<float>(Binary::Add, make_broadcast({Dims{2, 3}, Dims{2, 3}}), x, {x.data(), 5}, x),
      Error);
}

TEST(BinaryKernel, MaximumAndMinimumPropagateNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Binary op : {Binary::Maximum, Binary::Minimum}) {
    const std::vector<float> a(37, nan);
    const std::vector<float> b(37, 1.0F);
    std::vector<float> y(37);
    const Broadcast plan = make_broadcast({Dims{37}, Dims{37}});
    binary<float>(op, plan, a, b, y);
    for (const float v : y) EXPECT_TRUE(std::isnan(v));
    y.assign(37, 0);
    binary<float>(op, plan, b, a, y);
    for (const float v : y) EXPECT_TRUE(std::isnan(v));
  }
}

TEST(BinaryKernel, WorksInPlaceAndForAnyNumberOfThreads) {
  const auto a = random_values<float>(3 * 33333, 3);
  const auto b = random_values<float>(3 * 33333, 4);
  test::expect_thread_independent([&] {
    auto y = a;
    binary<float>(Binary::Mul, make_broadcast({Dims{3, 33333}, Dims{3, 33333}}), y, b, y);
    binary<float>(Binary::Add, make_broadcast({Dims{3, 33333}, Dims{33333}}), y, {b.data(), 33333},
                  y);
    binary<float>(Binary::Div, make_broadcast({Dims{3, 33333}, Dims{3, 1}}), y, {b.data(), 3}, y);
    return y;
  });
}

TEST(WhereKernel, SelectsUnderBroadcasting) {
  const Dims c{4, 1, 3};
  const Dims a{5, 1};
  const Dims b{};
  const Dims y{4, 5, 3};
  const std::vector<float> condition = {0, 1, -1, 0, 0, 2, 1, 1, 1, 0, 0, 0};
  const auto va = random_values<float>(5, 5);
  const std::vector<float> vb = {9};
  auto out = unwritten<float>(60);
  where<float>(make_broadcast({c, a, b}), condition, va, vb, out);
  for (std::int64_t i = 0; i < 60; ++i) {
    const bool yes = condition[static_cast<std::size_t>(source(y, c, i))] != 0;
    ASSERT_EQ(out[static_cast<std::size_t>(i)],
              yes ? va[static_cast<std::size_t>(source(y, a, i))] : 9.0F);
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> one(1);
  const Dims scalar{};
  where<float>(make_broadcast({scalar, scalar, scalar}), std::vector<float>{0},
               std::vector<float>{nan}, std::vector<float>{2}, one);
  EXPECT_EQ(one[0], 2);  // the branch not taken does not leak
}

TEST(ElementwiseKernel, HelpersDoWhatTheySay) {
  const auto x = random_values<float>(70001, 6);
  const auto start = random_values<float>(70001, 7);
  auto y = start;
  axpy<float>(0.5, x, y);
  auto z = unwritten<float>(70001);
  scale<float>(-3, x, z);
  auto w = unwritten<float>(70001);
  copy<float>(x, w);
  auto filled = unwritten<float>(70001);
  fill<float>(2.5F, filled);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(y[i], start[i] + 0.5F * x[i], 1e-6F);
    ASSERT_EQ(z[i], -3 * x[i]);
    ASSERT_EQ(filled[i], 2.5F);
  }
  EXPECT_TRUE(same_bits(w, x));
  std::vector<std::int64_t> integers(3);
  convert<float, std::int64_t>(std::vector<float>{-1.75F, 0, 3.5F}, integers);
  EXPECT_EQ(integers, (std::vector<std::int64_t>{-1, 0, 3}));
}

}  // namespace
}  // namespace steady::kernels
