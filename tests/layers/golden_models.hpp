#pragma once

#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/pool.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/layers/conv2d.hpp>
#include <steadygrad/layers/decoder.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <string>
#include <utility>

#include "tests/support/golden.hpp"

/// The models of models.h5 and their data.
namespace steady::testing_support {

/// The datasets of a group as a state.
inline State read_state(const GoldenCase& c, const std::string& group) {
  State state;
  for (const std::string& name : c.datasets(group)) {
    state.push_back({name, c.tensor(group + "/" + name)});
  }
  return state;
}

/// Of /cnn: two convolutions of 3 x 3 with BatchNorm, ReLU and pooling, and a linear map.
struct GoldenCnn : Layer {
  struct Options {
    NormSpec norm = NormSpec::parse("batch");
    std::int64_t side = 8;
  };
  explicit GoldenCnn(Options options) : o(std::move(options)) {}
  Options o;
  Conv2d& conv1 = add<Conv2d>("conv1", {.in = 1, .out = 4, .kernel = 3, .padding = 1});
  Layer& bn1 = add_norm("bn1", o.norm, 4);
  Conv2d& conv2 = add<Conv2d>("conv2", {.in = 4, .out = 8, .kernel = 3, .padding = 1});
  Layer& bn2 = add_norm("bn2", o.norm, 8);
  Linear& fc = add<Linear>("fc", {.in = 8 * (o.side / 4) * (o.side / 4), .out = 10});

  Tensor forward(const Tensor& x) override {
    Tensor h = max_pool2d(relu(bn1(conv1(x))), 2);
    h = max_pool2d(relu(bn2(conv2(h))), 2);
    return fc(flatten(h, 1));
  }
};

/// A state of /cnn: fc.weight, [out, C * 2 * 2] of a channels-first model, in the order of our
/// features-last flattening.
inline State read_cnn_state(const GoldenCase& cnn, const std::string& group) {
  State state = read_state(cnn, group);
  for (auto& [name, value] : state) {
    if (name != "fc.weight") continue;
    const Tensor channels_last = permute(reshape(value, {10, 8, 2, 2}), {0, 2, 3, 1});
    value = reshape(channels_last, {10, 32}).detached_copy();
  }
  return state;
}

/// Block `step` of a [steps, ...] tensor.
inline Tensor step_of(const Tensor& all, std::int64_t step) {
  return reshape(slice(all, 0, step, step + 1), all.shape().slice(1, all.rank()));
}

/// Tokens of step `step` of /gpt without the last (inputs) or without the first (targets).
inline Tensor tokens_of(const GoldenCase& c, std::int64_t step, bool targets) {
  const Tensor batch = step_of(c.tensor("in/tokens"), step);  // of [steps, B, T + 1]
  return slice(batch, 1, targets ? 1 : 0, batch.dim(1) - (targets ? 0 : 1));
}

inline Decoder::Options gpt_options(const GoldenCase& c) {
  return Decoder::gpt2({.vocab = c.attribute_int("vocab_size"),
                        .context = c.attribute_int("block_size"),
                        .dim = c.attribute_int("n_embd"),
                        .layers = c.attribute_int("n_layer"),
                        .heads = c.attribute_int("n_head")});
}

}  // namespace steady::testing_support
