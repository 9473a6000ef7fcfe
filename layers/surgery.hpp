#pragma once

#include <memory>
#include <steadygrad/layers/decoder.hpp>
#include <steadygrad/layers/layer.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>

/// Conversions of trained models into others that compute the same. Every one makes a new model and
/// leaves the original as it was; the values are computed in float64 and rounded once.
namespace steady {

/// Weight and bias of a linear map with a BatchNorm behind it, the running statistics in it:
///   r = gain / sqrt(running_var + eps),  weight' = r * weight,  bias' = r * (bias - running_mean)
///   + shift
struct FoldedMap {
  Tensor weight;
  Tensor bias;
};
/// weight: [out, ...] of a Conv2d or Linear; bias: [out] or undefined. A norm without gain or shift
/// has 1 and 0. Throws Error for a norm without running statistics or with other features.
[[nodiscard]] FoldedMap fold_batch_norm(const Tensor& weight, const Tensor& bias,
                                        const BatchNorm& norm);

/// Folds every BatchNorm of `model` into the Conv2d or Linear whose output it reads, and gives
/// `into` the result, frozen and in the model's dtype. `into` is the same model built without
/// BatchNorm (norm "none") and with a bias in every map that had one behind it. Which map stands
/// before which norm is seen by running `model`, in eval or frozen mode, on x: one batch of any
/// size. Both models are then run on x and compared, to 1e-10 in float64 and 1e-3 in float32 of the
/// largest output.
///
/// The result cannot be trained on: a state of it has no norms, so a strict load into the original
/// refuses it. Throws Error, in one message: every BatchNorm that cannot be folded (no running
/// statistics; its input is not the output of a Conv2d or Linear; used more than once, or behind a
/// map that is), every name that does not fit `into`, or by how much the outputs differ (an output
/// of a map that something besides its norm reads). `into` is worthless then.
void fold_batch_norm(Layer& model, Layer& into, const Tensor& x);

/// The same for a model whose options say its norm: a new model with norm none.
///   std::unique_ptr<Cnn> inference = fold_batch_norm(cnn, batch.x);
template <class M>
requires requires(typename M::Options o) { o.norm = NormSpec(); }
[[nodiscard]] std::unique_ptr<M> fold_batch_norm(const M& model, const Tensor& x) {
  const std::unique_ptr<M> copy = clone(model);
  copy->eval();
  typename M::Options options = model.o;
  options.norm = NormSpec();
  auto folded = std::make_unique<M>(options);
  fold_batch_norm(static_cast<Layer&>(*copy), static_cast<Layer&>(*folded), x);
  return folded;
}

/// A decoder with RMSNorm in place of LayerNorm that computes the same [Pre-RMSNorm: Jiang et al.
/// 2023]. LN(x) = RMS(x - mean(x)), and in a pre-norm stream everything that is added can have its
/// mean taken out: rows of the embeddings, and weights and biases of what ends each branch. What
/// the norms add is moved into the maps behind them, so that the model may get biases; a tied head
/// is untied. Equal in eval mode to rounding; with dropout not in training, where masks bring means
/// back. The new model is in train mode and in the dtype of the old one.
/// Throws Error for a decoder that is not pre-norm with layer norms over positions, or that has a
/// norm of the embedding, norms inside its branches (normformer) or a gate per feature.
[[nodiscard]] std::unique_ptr<Decoder> to_pre_rms_norm(const Decoder& decoder);

}  // namespace steady
