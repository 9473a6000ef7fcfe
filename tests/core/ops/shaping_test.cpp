#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/tape.hpp>

#include "tests/support/golden.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/op_table.hpp"

namespace steady {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

const bool ShapingTable =
    register_ops("Shaping", {
                                {.name = "reshape",
                                 .f =
                                     [](Inputs in) {
                                       return reshape(in[0] * in[0], {2, in[0].numel() / 2});
                                     },
                                 .inputs = {real({3, 4})},
                                 .large = {real({300, 256})}},
                                {.name = "flatten",
                                 .f = [](Inputs in) { return flatten(in[0], 1); },
                                 .inputs = {real({2, 3, 2})}},
                                {.name = "permute",
                                 .f =
                                     [](Inputs in) {
                                       return permute(in[0], {2, 0, 1});
                                     },
                                 .inputs = {real({2, 3, 4})},
                                 .large = {real({41, 50, 60})}},
                                {.name = "transpose",
                                 .f = [](Inputs in) { return transpose(in[0], 0, -1); },
                                 .inputs = {real({2, 3, 4})},
                                 .large = {real({41, 50, 60})}},
                                {.name = "concat",
                                 .f =
                                     [](Inputs in) {
                                       return concat({in[0], in[1], in[0] * in[0]}, 1);
                                     },
                                 .inputs = {real({2, 3, 2}), real({2, 1, 2})},
                                 .large = {real({100, 30, 20}), real({100, 15, 20})}},
                                {.name = "slice",
                                 .f = [](Inputs in) { return slice(in[0], 1, 1, 4); },
                                 .inputs = {real({2, 5, 3})},
                                 .large = {real({100, 50, 30})}},
                                {.name = "slice_with_step",
                                 .f = [](Inputs in) { return slice(in[0], -1, 1, -1, 3); },
                                 .inputs = {real({2, 9})},
                                 .large = {real({300, 400})}},
                                {.name = "gather_rows",
                                 .f = [](Inputs in) { return gather_rows(in[0], in[1]); },
                                 .inputs = {real({5, 3}), integers({2, 4}, 0, 5)},
                                 .large = {real({50, 64}), integers({40, 60}, 0, 50)}},
                                {.name = "copy",
                                 .f = [](Inputs in) { return copy(in[0]); },
                                 .inputs = {real({3, 4})},
                                 .large = {real({300, 257})}},
                                {.name = "cast_to_itself",
                                 .f = [](Inputs in) { return cast(in[0] * in[0], in[0].dtype()); },
                                 .inputs = {real({3, 4})}},
                                {.name = "index_converted",
                                 .f = [](Inputs in) { return in[0] * cast(in[1], in[0].dtype()); },
                                 .inputs = {real({3, 4}), integers({3, 4}, -3, 4)}},
                            });

// --- reference values --------------------------------------------------------------------------

const Golden& ops() {
  static const Golden golden("ops.h5");
  return golden;
}

Shape shape_of(const GoldenCase& c) {
  const std::vector<std::int64_t> extents = c.attribute_ints("shape");
  return Shape(std::span<const std::int64_t>(extents));
}

int int_of(const GoldenCase& c, const char* name) {
  return static_cast<int>(c.attribute_int(name));
}

TEST(ShapingGolden, Reshape) {
  for (const GoldenCase& c : ops().cases("reshape")) {
    expect_golden(c, [&](GoldenInputs& in) {
      if (c.name() == "contiguous") return reshape(in.at("x"), shape_of(c));
      return reshape(transpose(in.at("x"), int_of(c, "dim0"), int_of(c, "dim1")), shape_of(c));
    });
  }
}

TEST(ShapingGolden, TransposeAndPermute) {
  for (const GoldenCase& c : ops().cases("transpose")) {
    expect_golden(c, [&](GoldenInputs& in) {
      return transpose(in.at("x"), int_of(c, "dim0"), int_of(c, "dim1"));
    });
  }
  for (const GoldenCase& c : ops().cases("permute")) {
    const std::vector<std::int64_t> dims = c.attribute_ints("dims");
    const std::vector<int> axes(dims.begin(), dims.end());
    expect_golden(c, [&](GoldenInputs& in) { return permute(in.at("x"), axes); });
  }
}

TEST(ShapingGolden, Concat) {
  for (const GoldenCase& c : ops().cases("cat")) {
    expect_golden(c, [&](GoldenInputs& in) {
      std::vector<Tensor> parts;
      for (const auto& [name, tensor] : in) parts.push_back(tensor);
      if (c.name() == "same_tensor_twice") parts.push_back(parts[0]);
      return concat(parts, int_of(c, "dim"));
    });
  }
}

TEST(ShapingGolden, StackIsReshapeAndConcat) {
  for (const GoldenCase& c : ops().cases("stack")) {
    expect_golden(c, [&](GoldenInputs& in) {
      const auto raised = [](const Tensor& t) { return reshape(t, {t.dim(0), 1, t.dim(1)}); };
      return concat({raised(in.at("a")), raised(in.at("b"))}, int_of(c, "dim"));
    });
  }
}

TEST(ShapingGolden, Slice) {
  for (const GoldenCase& c : ops().cases("slice")) {
    const auto start = c.attribute_ints("start");
    const auto stop = c.attribute_ints("stop");
    const auto step = c.attribute_ints("step");
    expect_golden(c, [&](GoldenInputs& in) {
      Tensor y = in.at("x");
      for (std::size_t axis = 0; axis < start.size(); ++axis) {
        y = slice(y, static_cast<int>(axis), start[axis], stop[axis], step[axis]);
      }
      return y;
    });
  }
}

TEST(ShapingGolden, IndexSelectIsGatherRows) {
  const auto along_first = [](const Tensor& x, const Tensor& index) {
    const Shape rest = x.shape().slice(1, x.rank());
    const Tensor rows = gather_rows(reshape(x, {x.dim(0), rest.numel()}), index);
    Shape shape{index.dim(0)};
    for (const std::int64_t extent : rest) shape = shape.appended(extent);
    return reshape(rows, shape);
  };
  for (const GoldenCase& c : ops().cases("index_select")) {
    const int dim = int_of(c, "dim");
    expect_golden(c, [&](GoldenInputs& in) {
      return transpose(along_first(transpose(in.at("x"), 0, dim), in.at("index")), 0, dim);
    });
  }
}

TEST(ShapingGolden, EmbeddingIsGatherRows) {
  expect_golden(ops().group("embedding/repeated_ids"),
                [](GoldenInputs& in) { return gather_rows(in.at("weight"), in.at("ids")); });
}

// --- behaviour ---------------------------------------------------------------------------------

TEST(Reshape, SharesMemoryAndRefusesAnotherSize) {
  const Tensor x = Tensor::ones({2, 3});
  EXPECT_TRUE(reshape(x, {6}).shares_storage_with(x));
  EXPECT_TRUE(flatten(x).shares_storage_with(x));
  EXPECT_EQ(flatten(Tensor::scalar(1)).shape(), (Shape{1}));
  EXPECT_THAT(message_of([&] { (void)reshape(x, {7}); }),
              AllOf(HasSubstr("reshape: "), HasSubstr("f32 [2, 3]"), HasSubstr("[7]")));
}

TEST(Shaping, EveryOtherOperationHasMemoryOfItsOwn) {
  const Tensor x = Tensor::ones({2, 3});
  EXPECT_FALSE(copy(x).shares_storage_with(x));
  EXPECT_FALSE(cast(x, Dtype::F32).shares_storage_with(x));
  EXPECT_FALSE(permute(x, {0, 1}).shares_storage_with(x));
  EXPECT_FALSE(slice(x, 0, 0, 2).shares_storage_with(x));
  EXPECT_FALSE(concat({x}, 0).shares_storage_with(x));
}

TEST(Transpose, EqualsTheSameValuesLaidOutThatWay) {  // CASES LN-12, the numbers
  Tensor base = Tensor::empty({3, 4}, Dtype::F64);
  for (std::size_t k = 0; k < 12; ++k) {
    base.mutable_data<double>()[k] = std::sin(0.53 * static_cast<double>(k));
  }
  base.set_requires_grad();
  Tensor dy = Tensor::empty({3, 4}, Dtype::F64);
  for (std::size_t k = 0; k < 12; ++k) dy.mutable_data<double>()[k] = 0.2 * static_cast<double>(k);
  Tape tape;
  const Tensor x = transpose(base, 0, 1);
  const Tensor centered = x - mean(x, -1, true);
  const Tensor y = centered * rsqrt(mean(square(centered), -1, true) + 1e-5);
  const Gradients g = tape.backward(y, {.cotangent = transpose(dy, 0, 1)});
  const std::vector<double> want = {0.01758111, 1.21584759, -1.23342869};
  const std::vector<double> dx = {-1.11565256, 0.56982732, 0.54582524};
  for (std::size_t j = 0; j < 3; ++j) {
    EXPECT_NEAR(y.data<double>()[j], want[j], 1e-8);
    EXPECT_NEAR(g[base].data<double>()[4 * j], dx[j], 1e-8);
  }
}

TEST(Permute, RefusesWhatIsNoPermutation) {
  const Tensor x = Tensor::ones({2, 3});
  EXPECT_THAT(message_of([&] { (void)permute(x, {0}); }), HasSubstr("permute: needs 2 axes"));
  EXPECT_THAT(message_of([&] { (void)permute(x, {0, 0}); }), HasSubstr("named twice"));
  EXPECT_THAT(message_of([&] { (void)transpose(x, 0, 2); }), HasSubstr("transpose: "));
}

TEST(Concat, RefusesPartsThatDoNotFit) {
  const Tensor a = Tensor::ones({2, 3});
  const Tensor b = Tensor::ones({3, 3});
  EXPECT_THAT(message_of([&] {
                (void)concat({a, b}, 1);
              }),
              AllOf(HasSubstr("concat: "), HasSubstr("[2, 3]"), HasSubstr("[3, 3]")));
  EXPECT_EQ(concat({a, b}, 0).shape(), (Shape{5, 3}));
  EXPECT_THROW((void)concat({a, a.detached_copy(Dtype::F64)}, 0), ShapeError);
  EXPECT_THROW((void)concat(std::span<const Tensor>(), 0), ShapeError);
  EXPECT_THROW((void)concat({a, Tensor()}, 0), ShapeError);
}

TEST(Slice, ClipsNothingSilently) {
  const Tensor x = Tensor::of({5}, {0, 1, 2, 3, 4});
  EXPECT_THAT(slice(x, 0, -3, -1).data<float>(), ElementsAre(2.0F, 3.0F));
  EXPECT_EQ(slice(x, 0, 2, 2).numel(), 0);
  EXPECT_THAT(message_of([&] { (void)slice(x, 0, 0, 6); }),
              AllOf(HasSubstr("slice: "), HasSubstr("f32 [5]"), HasSubstr("stop 6")));
  EXPECT_THROW((void)slice(x, 0, 3, 2), ShapeError);
  EXPECT_THROW((void)slice(x, 0, -6, 2), ShapeError);
  EXPECT_THROW((void)slice(x, 0, 0, 5, 0), ShapeError);
}

TEST(GatherRows, RefusesAnIndexOutsideTheTable) {
  const Tensor table = Tensor::ones({4, 2});
  const auto gather = [&](std::int64_t index) {
    return message_of([&] {
      (void)gather_rows(table, Tensor::full({1}, static_cast<double>(index), Dtype::I64));
    });
  };
  EXPECT_THAT(gather(4), AllOf(HasSubstr("gather_rows: "), HasSubstr("4")));
  EXPECT_THAT(gather(-1), HasSubstr("-1"));
  EXPECT_EQ(gather(3), "no exception");
  EXPECT_THROW((void)gather_rows(table, Tensor::zeros({1}, Dtype::I32)), ShapeError);
}

TEST(Cast, GradientComesBackInTheDtypeOfTheLeaf) {
  const Tensor x = Tensor::of({2}, {0.5, -3.0}, Dtype::F32).set_requires_grad();
  Tape tape;
  const Tensor y = cast(x, Dtype::F64);
  EXPECT_EQ(y.dtype(), Dtype::F64);
  const Gradients first = tape.backward(sum(y * y), {.record = true});
  EXPECT_THAT(first[x].data<float>(), ElementsAre(1.0F, -6.0F));
  EXPECT_THAT(tape.backward(sum(first[x]))[x].data<float>(), ElementsAre(2.0F, 2.0F));
}

TEST(Cast, ToIntegersRefusesAGradientByName) {  // CASES AG-09
  const Tensor x = Tensor::of({2}, {0.5, -3.7}, Dtype::F64).set_requires_grad();
  Tape tape;
  const Tensor whole = cast(x, Dtype::I64);
  EXPECT_THAT(whole.data<std::int64_t>(), ElementsAre(0, -3));
  const Tensor y = sum(cast(whole, Dtype::F64));
  EXPECT_THAT(message_of([&] { (void)tape.backward(y); }), HasSubstr("cast: "));
}

}  // namespace
}  // namespace steady
