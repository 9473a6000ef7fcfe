#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/group_norm.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>

#include "tests/support/op_table.hpp"

// Every norm with every combination of parameters as a row of the operation table.

namespace steady {
namespace {

using namespace testing_support;

/// Statistics for eval: positive variances.
OpInput mean_of(std::int64_t channels) { return real({channels}).constant(); }
OpInput var_of(std::int64_t channels) { return real({channels}, 0.5, 2.0).constant(); }

std::vector<OpInput> with(const Shape& x, std::vector<OpInput> more) {
  more.insert(more.begin(), real(x));
  return more;
}

const bool layer_rows = register_ops(
    "LayerNorm", {{.name = "weight_and_bias",
                   .f = [](Inputs in) { return layer_norm(in[0], {in[0].dim(-1)}, in[1], in[2]); },
                   .inputs = with({2, 3, 5}, {real({5}), real({5})}),
                   .large = with({700, 129}, {real({129}), real({129})})},
                  {.name = "weight_only",
                   .f = [](Inputs in) { return layer_norm(in[0], {in[0].dim(-1)}, in[1]); },
                   .inputs = with({4, 7}, {real({7})}),
                   .large = with({3, 40000}, {real({40000})})},
                  {.name = "bias_only",
                   .f = [](Inputs in) { return layer_norm(in[0], {in[0].dim(-1)}, {}, in[1]); },
                   .inputs = with({4, 7}, {real({7})})},
                  {.name = "no_affine",
                   .f = [](Inputs in) { return layer_norm(in[0], {in[0].dim(-1)}, {}, {}, 0.1); },
                   .inputs = with({3, 4}, {}),
                   .large = with({2000, 40}, {})},
                  {.name = "over_two_axes",
                   .f = [](Inputs in) { return layer_norm(in[0], in[1].shape(), in[1], in[2]); },
                   .inputs = with({3, 2, 4}, {real({2, 4}), real({2, 4})}),
                   .large = with({40, 30, 41}, {real({30, 41}), real({30, 41})})},
                  {.name = "one_row",
                   .f = [](Inputs in) { return layer_norm(in[0], {in[0].dim(-1)}, in[1], in[2]); },
                   .inputs = with({6}, {real({6}), real({6})})},
                  {.name = "width_one",
                   .f = [](Inputs in) { return layer_norm(in[0], {1}, in[1], in[2]); },
                   .inputs = with({3, 1}, {real({1}), real({1})})},
                  {.name = "over_sample",
                   .f = [](Inputs in) { return layer_norm_over_sample(in[0], in[1], in[2]); },
                   .inputs = with({2, 2, 3, 3}, {real({3}), real({3})}),
                   .large = with({9, 17, 17, 19}, {real({19}), real({19})})},
                  {.name = "over_sample_no_affine",
                   .f = [](Inputs in) { return layer_norm_over_sample(in[0]); },
                   .inputs = with({2, 3, 2}, {})}});

const bool rms_rows = register_ops(
    "RmsNorm", {{.name = "weight",
                 .f = [](Inputs in) { return rms_norm(in[0], {in[0].dim(-1)}, in[1]); },
                 .inputs = with({2, 3, 5}, {real({5})}),
                 .large = with({700, 129}, {real({129})})},
                {.name = "no_affine",
                 .f = [](Inputs in) { return rms_norm(in[0], {in[0].dim(-1)}, {}, 0.1); },
                 .inputs = with({3, 4}, {}),
                 .large = with({3, 40000}, {})},
                {.name = "unit_offset",
                 .f = [](Inputs in) { return rms_norm(in[0], {in[0].dim(-1)}, in[1], 1e-6, true); },
                 .inputs = with({4, 6}, {real({6})}),
                 .large = with({2000, 40}, {real({40})})},
                {.name = "over_two_axes",
                 .f = [](Inputs in) { return rms_norm(in[0], in[1].shape(), in[1]); },
                 .inputs = with({3, 2, 4}, {real({2, 4})}),
                 .large = with({40, 30, 41}, {real({30, 41})})},
                {.name = "one_row",
                 .f = [](Inputs in) { return rms_norm(in[0], {in[0].dim(-1)}, in[1]); },
                 .inputs = with({6}, {real({6})})}});

const bool batch_rows = register_ops(
    "BatchNorm",
    {{.name = "train_rank_2",
      .f = [](Inputs in) { return batch_norm(in[0], in[1], in[2]).y; },
      .inputs = with({5, 3}, {real({3}), real({3})}),
      .large = with({3000, 33}, {real({33}), real({33})})},
     {.name = "train_rank_3",
      .f = [](Inputs in) { return batch_norm(in[0], in[1]).y; },
      .inputs = with({2, 3, 2}, {real({2})}),
      .large = with({70, 50, 31}, {real({31})})},
     {.name = "train_rank_4",
      .f = [](Inputs in) { return batch_norm(in[0], in[1], in[2]).y; },
      .inputs = with({2, 2, 2, 3}, {real({3}), real({3})}),
      .large = with({8, 28, 28, 16}, {real({16}), real({16})})},
     {.name = "train_no_affine",
      .f = [](Inputs in) { return batch_norm(in[0], {}, {}, 0.1).y; },
      .inputs = with({4, 3}, {}),
      .large = with({20000, 3}, {})},
     {.name = "train_bias_only",
      .f = [](Inputs in) { return batch_norm(in[0], {}, in[1]).y; },
      .inputs = with({4, 3}, {real({3})})},
     {.name = "train_one_channel",
      .f = [](Inputs in) { return batch_norm(in[0], in[1], in[2]).y; },
      .inputs = with({5, 1}, {real({1}), real({1})})},
     {.name = "eval",
      .f = [](Inputs in) { return batch_norm_eval(in[0], in[3], in[4], in[1], in[2]); },
      .inputs = with({2, 2, 2, 3}, {real({3}), real({3}), mean_of(3), var_of(3)}),
      .large = with({3000, 33}, {real({33}), real({33}), mean_of(33), var_of(33)})},
     {.name = "eval_weight_only",
      .f = [](Inputs in) { return batch_norm_eval(in[0], in[2], in[3], in[1]); },
      .inputs = with({4, 3}, {real({3}), mean_of(3), var_of(3)})},
     {.name = "eval_no_affine",
      .f = [](Inputs in) { return batch_norm_eval(in[0], in[1], in[2]); },
      .inputs = with({4, 3}, {mean_of(3), var_of(3)})},
     {.name = "eval_one_row",
      .f = [](Inputs in) { return batch_norm_eval(in[0], in[3], in[4], in[1], in[2]); },
      .inputs = with({1, 3}, {real({3}), real({3}), mean_of(3), var_of(3)})}});

const bool group_rows = register_ops(
    "GroupNorm", {{.name = "weight_and_bias",
                   .f = [](Inputs in) { return group_norm(in[0], 2, in[1], in[2]); },
                   .inputs = with({2, 2, 2, 4}, {real({4}), real({4})}),
                   .large = with({9, 17, 17, 36}, {real({36}), real({36})})},
                  {.name = "weight_only",
                   .f = [](Inputs in) { return group_norm(in[0], 3, in[1]); },
                   .inputs = with({2, 3, 6}, {real({6})}),
                   .large = with({1, 5000, 33}, {real({33})})},
                  {.name = "bias_only",
                   .f = [](Inputs in) { return group_norm(in[0], 2, {}, in[1]); },
                   .inputs = with({3, 2, 4}, {real({4})})},
                  {.name = "no_affine",
                   .f = [](Inputs in) { return group_norm(in[0], 2, {}, {}, 0.1); },
                   .inputs = with({3, 6}, {}),
                   .large = with({40, 49, 512}, {})},
                  {.name = "group_per_channel",
                   .f = [](Inputs in) { return group_norm(in[0], in[0].dim(-1), in[1], in[2]); },
                   .inputs = with({2, 4, 3}, {real({3}), real({3})}),
                   .large = with({3, 900, 70}, {real({70}), real({70})})},
                  {.name = "one_group",
                   .f = [](Inputs in) { return group_norm(in[0], 1, in[1], in[2]); },
                   .inputs = with({2, 2, 3}, {real({3}), real({3})})}});

}  // namespace
}  // namespace steady
