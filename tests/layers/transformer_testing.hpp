#pragma once

#include <gtest/gtest.h>

#include <steadygrad/core/gradcheck.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/layers/attention.hpp>
#include <steadygrad/layers/embedding.hpp>
#include <steadygrad/layers/gate.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>
#include <string>
#include <vector>

// Shared by the tests of the Transformer layers.
namespace steady::transformer_testing {

/// Normal numbers of float64.
inline Tensor noise(const Shape& shape, std::string_view name, double spread = 1.0) {
  Random random(11, name);
  Tensor t = Tensor::empty(shape, Dtype::F64);
  for (double& v : t.mutable_data<double>()) v = spread * random.normal();
  return t;
}

/// Ids in 0 .. vocab-1.
inline Tensor random_ids(const Shape& shape, std::int64_t vocab, std::string_view name = "ids") {
  Random random(12, name);
  Tensor t = Tensor::empty(shape, Dtype::I64);
  for (std::int64_t& v : t.mutable_data<std::int64_t>()) v = random.below(vocab);
  return t;
}

/// Float64, and every parameter (norm gains and biases too) another random number.
inline void randomize(Module& model, double spread = 0.5) {
  model.to(Dtype::F64);
  State state;
  for (const NamedTensor& t : model.state()) {
    state.push_back({t.name, noise(t.value.shape(), t.name, spread)});
  }
  model.load(state);
}

/// The places where the layers of a model keep their parameters.
inline std::vector<Tensor*> parameter_slots(Module& model) {
  std::vector<Tensor*> slots;
  const auto take = [&](Tensor& slot) {
    if (slot.defined()) slots.push_back(&slot);
  };
  model.visit([&](Module& m) {
    if (auto* linear = dynamic_cast<Linear*>(&m)) {
      take(linear->weight);
      take(linear->bias);
    } else if (auto* layer = dynamic_cast<LayerNorm*>(&m)) {
      take(layer->weight);
      take(layer->bias);
    } else if (auto* rms = dynamic_cast<RmsNorm*>(&m)) {
      take(rms->weight);
    } else if (auto* scale = dynamic_cast<Scale*>(&m)) {
      take(scale->gamma);
    } else if (auto* attention = dynamic_cast<Attention*>(&m)) {
      take(attention->head_scale);
    } else if (auto* table = dynamic_cast<Embedding*>(&m)) {
      take(table->weight);
    }
  });
  return slots;
}

/// Gradient check of `f`, which runs `model`, by every parameter and by `inputs`.
inline void expect_gradients(Module& model, const std::vector<Tensor>& inputs,
                             const TensorFunction& f, bool second) {
  const std::vector<Tensor*> slots = parameter_slots(model);
  ASSERT_EQ(slots.size(), model.parameters().size()) << "a parameter is not checked";
  std::vector<Tensor> variables = inputs;
  for (const Tensor* slot : slots) variables.push_back(*slot);
  const TensorFunction rebound = [&](std::span<const Tensor> in) {
    for (std::size_t i = 0; i < slots.size(); ++i) *slots[i] = in[inputs.size() + i];
    return f(in.first(inputs.size()));
  };
  const GradcheckResult first = gradcheck(rebound, variables, {.step = 3e-4});
  EXPECT_TRUE(first.ok) << first.message;
  if (!second) return;
  const GradcheckResult twice =
      gradcheck_second(rebound, variables, {.step = 3e-4, .tolerance = 1e-6});
  EXPECT_TRUE(twice.ok) << "second order: " << twice.message;
}

}  // namespace steady::transformer_testing
