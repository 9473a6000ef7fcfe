#include <steadygrad/layers/norm/ada_norm.hpp>
#include <steadygrad/layers/norm/dynamic_erf.hpp>
#include <steadygrad/layers/norm/dynamic_tanh.hpp>
#include <steadygrad/layers/norm/l2_normalize.hpp>
#include <steadygrad/layers/norm/partial_rms_norm.hpp>
#include <steadygrad/layers/norm/scale_norm.hpp>
#include <steadygrad/layers/norm/simple_rms_norm.hpp>

#include "tests/support/op_table.hpp"

// The row-wise norms beside layer and rms as rows of the operation table.

namespace steady {
namespace {

using namespace testing_support;

Shape last(const Tensor& x) { return {x.dim(-1)}; }

const bool partial_rms_rows = register_ops(
    "PartialRmsNorm",
    {{.name = "weight",
      .f = [](Inputs in) { return partial_rms_norm(in[0], last(in[0]), in[1], 0.5); },
      .inputs = {real({2, 3, 5}), real({5})},
      .large = {real({700, 129}), real({129})}},
     {.name = "one_element_of_many",
      .f = [](Inputs in) { return partial_rms_norm(in[0], last(in[0]), in[1], 0.01, 0.1); },
      .inputs = {real({4, 7}), real({7})},
      .large = {real({2000, 40}), real({40})}},
     {.name = "no_affine",
      .f = [](Inputs in) { return partial_rms_norm(in[0], last(in[0]), {}, 0.3, 0.1); },
      .inputs = {real({3, 4})},
      .large = {real({3, 40000})}},
     {.name = "all_elements",
      .f = [](Inputs in) { return partial_rms_norm(in[0], last(in[0]), in[1], 1); },
      .inputs = {real({3, 4}), real({4})}},
     {.name = "over_two_axes",
      .f = [](Inputs in) { return partial_rms_norm(in[0], in[1].shape(), in[1], 0.6); },
      .inputs = {real({3, 2, 4}), real({2, 4})},
      .large = {real({40, 30, 41}), real({30, 41})}}});

const bool simple_rms_rows = register_ops(
    "SimpleRmsNorm", {{.name = "rows",
                       .f = [](Inputs in) { return simple_rms_norm(in[0], last(in[0])); },
                       .inputs = {real({2, 3, 5})},
                       .large = {real({700, 129})}}});

const bool scale_rows = register_ops(
    "ScaleNorm", {{.name = "g",
                   .f = [](Inputs in) { return scale_norm(in[0], last(in[0]), in[1]); },
                   .inputs = {real({2, 3, 5}), real({})},
                   .large = {real({700, 129}), real({})}},
                  {.name = "rows_longer_than_a_period",
                   .f = [](Inputs in) { return scale_norm(in[0], last(in[0]), in[1]); },
                   .inputs = {real({6}), real({})},
                   .large = {real({3, 40001}), real({})}},
                  {.name = "rows_shorter_than_eps",
                   .f = [](Inputs in) { return scale_norm(in[0], last(in[0]), in[1], 50); },
                   .inputs = {real({3, 4}), real({})},
                   .large = {real({2000, 40}), real({})}},
                  {.name = "no_g",
                   .f =
                       [](Inputs in) {
                         return scale_norm(in[0], {2, 4});
                       },
                   .inputs = {real({3, 2, 4})}}});

const bool l2_rows = register_ops(
    "L2Normalize", {{.name = "rows",
                     .f = [](Inputs in) { return l2_normalize(in[0], last(in[0])); },
                     .inputs = {real({2, 3, 5})},
                     .large = {real({700, 129})}},
                    {.name = "rows_shorter_than_eps",
                     .f = [](Inputs in) { return l2_normalize(in[0], last(in[0]), 50); },
                     .inputs = {real({3, 4})}},
                    {.name = "over_two_axes",
                     .f =
                         [](Inputs in) {
                           return l2_normalize(in[0], {in[0].dim(1), in[0].dim(2)});
                         },
                     .inputs = {real({3, 2, 4})},
                     .large = {real({40, 30, 41})}}});

const bool dynamic_tanh_rows = register_ops(
    "DynamicTanh",
    {{.name = "weight_and_bias",
      .f = [](Inputs in) { return dynamic_tanh(in[0], last(in[0]), in[1], in[2], in[3]); },
      .inputs = {real({2, 3, 5}), real({1}), real({5}), real({5})},
      .large = {real({700, 129}), real({1}), real({129}), real({129})}},
     {.name = "weight_only",
      .f = [](Inputs in) { return dynamic_tanh(in[0], last(in[0]), in[1], in[2]); },
      .inputs = {real({4, 7}), real({1}), real({7})},
      .large = {real({3, 40000}), real({1}), real({40000})}},
     {.name = "no_affine",
      .f = [](Inputs in) { return dynamic_tanh(in[0], last(in[0]), in[1]); },
      .inputs = {real({3, 4}), real({1})},
      .large = {real({2000, 40}), real({1})}},
     {.name = "over_two_axes",
      .f = [](Inputs in) { return dynamic_tanh(in[0], in[2].shape(), in[1], in[2]); },
      .inputs = {real({3, 2, 4}), real({1}), real({2, 4})}}});

const bool dynamic_erf_rows = register_ops(
    "DynamicErf",
    {{.name = "weight_and_bias",
      .f = [](Inputs in) { return dynamic_erf(in[0], last(in[0]), in[1], in[2], in[3], in[4]); },
      .inputs = {real({2, 3, 5}), real({1}), real({1}), real({5}), real({5})},
      .large = {real({700, 129}), real({1}), real({1}), real({129}), real({129})}},
     {.name = "no_shift",
      .f = [](Inputs in) { return dynamic_erf(in[0], last(in[0]), in[1], {}, in[2]); },
      .inputs = {real({4, 7}), real({1}), real({7})},
      .large = {real({3, 40000}), real({1}), real({40000})}},
     {.name = "bias_only",
      .f = [](Inputs in) { return dynamic_erf(in[0], last(in[0]), in[1], in[2], {}, in[3]); },
      .inputs = {real({3, 4}), real({1}), real({1}), real({4})}}});

const bool ada_rows = register_ops(
    "AdaNorm", {{.name = "factor_as_a_function",
                 .f =
                     [](Inputs in) {
                       return ada_norm(in[0], last(in[0]), {.c = 2, .k = 0.3, .detach = false});
                     },
                 .inputs = {real({2, 3, 5})},
                 .large = {real({700, 129})}}});

}  // namespace
}  // namespace steady
