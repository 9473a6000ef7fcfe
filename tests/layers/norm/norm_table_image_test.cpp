#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/batch_renorm.hpp>
#include <steadygrad/layers/norm/filter_response_norm.hpp>
#include <steadygrad/layers/norm/ghost_batch_norm.hpp>
#include <steadygrad/layers/norm/instance_norm.hpp>
#include <steadygrad/layers/norm/local_response_norm.hpp>
#include <steadygrad/layers/norm/mean_only_batch_norm.hpp>

#include "tests/support/op_table.hpp"

// The norms of images, and the relatives of BatchNorm, as rows of the operation table.

namespace steady {
namespace {

using namespace testing_support;

std::vector<OpInput> with(const Shape& x, std::vector<OpInput> more = {}) {
  more.insert(more.begin(), real(x));
  return more;
}

const bool instance_rows = register_ops(
    "InstanceNorm", {{.name = "weight_and_bias",
                      .f = [](Inputs in) { return instance_norm(in[0], in[1], in[2]).y; },
                      .inputs = with({2, 2, 2, 3}, {real({3}), real({3})}),
                      .large = with({5, 28, 28, 17}, {real({17}), real({17})})},
                     {.name = "no_affine",
                      .f = [](Inputs in) { return instance_norm(in[0], {}, {}, 0.1).y; },
                      .inputs = with({2, 3, 4})}});

const bool ghost_rows = register_ops(
    "GhostBatchNorm", {{.name = "with_a_shorter_last_one",
                        .f = [](Inputs in) { return ghost_batch_norm(in[0], 2, in[1], in[2]).y; },
                        .inputs = with({5, 2, 3}, {real({3}), real({3})}),
                        .large = with({5, 900, 33}, {real({33}), real({33})})},
                       {.name = "no_affine",
                        .f = [](Inputs in) { return ghost_batch_norm(in[0], 3).y; },
                        .inputs = with({6, 2})}});

const bool mean_only_rows = register_ops(
    "MeanOnlyBatchNorm", {{.name = "center_batch",
                           .f = [](Inputs in) { return center_batch(in[0]).y; },
                           .inputs = with({2, 3, 4}),
                           .large = with({3000, 33})},
                          {.name = "squared",
                           .f = [](Inputs in) { return square(center_batch(in[0]).y); },
                           .inputs = with({4, 3})}});

/// Limits so narrow that r and d are at them whatever x is: only there are they the constants for
/// differences that they are for derivatives.
const bool renorm_rows = register_ops(
    "BatchRenorm",
    {{.name = "clipped",
      .f =
          [](Inputs in) {
            return batch_renorm(in[0], in[3], in[4], {.rmax = 1.5, .dmax = 0.25}, in[1], in[2]).y;
          },
      .inputs = with({5, 3}, {real({3}), real({3}), real({3}, 8, 9).constant(),
                              real({3}, 0.01, 0.02).constant()}),
      .large = with({3000, 33}, {real({33}), real({33}), real({33}, 8, 9).constant(),
                                 real({33}, 0.01, 0.02).constant()})},
     {.name = "without_parameters",
      .f =
          [](Inputs in) {
            return batch_renorm(in[0], in[1], in[2], {.rmax = 1.5, .dmax = 0.25}).y;
          },
      .inputs = with({5, 3}, {real({3}, 8, 9).constant(), real({3}, 0.01, 0.02).constant()})}});

const bool frn_rows = register_ops(
    "FilterResponseNorm",
    {{.name = "threshold",
      .f = [](Inputs in) { return filter_response_norm(in[0], in[1], in[2], in[3], 0.1); },
      .inputs = with({2, 2, 2, 3}, {real({3}), real({3}), real({3}, -0.1, 0.1)}),
      .large = with({9, 30, 30, 17}, {real({17}), real({17}), real({17}, -0.1, 0.1)})},
     {.name = "learned_eps",
      .f = [](Inputs in) { return filter_response_norm(in[0], in[1], in[2], {}, in[3]); },
      .inputs = with({2, 3, 2}, {real({2}), real({2}), real({1}, -0.5, -0.2)}),
      .large = with({70, 50, 31}, {real({31}), real({31}), real({1}, -0.5, -0.2)})},
     {.name = "bare",
      .f = [](Inputs in) { return filter_response_norm(in[0]); },
      .inputs = with({3, 4, 2})}});

const bool lrn_rows = register_ops(
    "LocalResponseNorm",
    {{.name = "size_three",
      .f = [](Inputs in) { return local_response_norm(in[0], {.size = 3, .alpha = 0.5, .k = 2}); },
      .inputs = with({2, 2, 5}),
      .large = with({300, 7, 33})},
     {.name = "even_size",
      .f = [](Inputs in) { return local_response_norm(in[0], {.size = 4, .alpha = 0.9}); },
      .inputs = with({3, 6})},
     {.name = "wider_than_the_channels",
      .f = [](Inputs in) { return local_response_norm(in[0], {.size = 9, .alpha = 0.9}); },
      .inputs = with({3, 4})},
     {.name = "window_sum",
      .f = [](Inputs in) { return square(channel_window_sum(in[0], 2, 1)); },
      .inputs = with({2, 6}),
      .large = with({2000, 40})}});

}  // namespace
}  // namespace steady
