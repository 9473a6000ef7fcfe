#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <steadygrad/core/gradients.hpp>
#include <steadygrad/core/tensor.hpp>
#include <vector>

/// Second-order information about a scalar function of some leaves, exact through a recorded
/// backward. The leaves are f32 or f64 and require a gradient; a leaf that the loss does not reach
/// has zero derivatives.
namespace steady {

/// A scalar made of recorded operations on the leaves, the same at every call: dropout off, one
/// batch. It runs under NoStateUpdate, so running statistics keep their bits.
using LossFunction = std::function<Tensor()>;

/// Linear map from one tensor per leaf to one tensor per leaf.
using LeafOperator = std::function<std::vector<Tensor>(std::span<const Tensor> v)>;

/// H v with H the matrix of second derivatives of `loss` by the leaves: the gradient of
/// <gradient, v>. v, result: one tensor per leaf, in its shape and dtype.       [Pearlmutter 1994]
/// Throws ShapeError when v does not fit, Error when the loss is not on the tape or an operation
/// has no second derivative (named).
[[nodiscard]] std::vector<Tensor> hessian_vector_product(const LossFunction& loss,
                                                         std::span<const Tensor> leaves,
                                                         std::span<const Tensor> v);

/// The same for operations without a second derivative: (g(w + h v) - g(w - h v)) / 2h, with the
/// step h = `step` * max(1, |w|) / |v|. The leaves are moved and put back bit for bit.
[[nodiscard]] std::vector<Tensor> hessian_vector_difference(const LossFunction& loss,
                                                            std::span<const Tensor> leaves,
                                                            std::span<const Tensor> v,
                                                            double step = 1e-3);

/// Options of top_eigenvalue.
struct EigenvalueOptions {
  int iterations = 40;      ///< most products; stops early at `tolerance`
  double tolerance = 1e-6;  ///< of the residual, relative to the eigenvalue
  std::uint64_t seed = 0;   ///< of the start vector
};

/// An eigenvalue and how well it is known.
struct Eigenvalue {
  double value = 0;
  double residual = 0;     ///< |A q - value q| for the unit vector q: |error of value| is below it
  int iterations = 0;      ///< products taken
  bool converged = false;  ///< residual <= tolerance * |value|
};

/// The largest (most positive) eigenvalue of a symmetric operator by Lanczos iteration with full
/// reorthogonalization, from a start vector drawn from the seed; the vectors are kept in float64.
/// `like` gives shapes and dtypes of the operator's argument. Throws Error when `like` is empty, an
/// option is not positive, or a product is not finite.                             [Lanczos 1950]
[[nodiscard]] Eigenvalue top_eigenvalue(const LeafOperator& apply, std::span<const Tensor> like,
                                        const EigenvalueOptions& options = {});

/// The largest eigenvalue of the Hessian of `loss` ("sharpness").
[[nodiscard]] Eigenvalue top_eigenvalue(const LossFunction& loss, std::span<const Tensor> leaves,
                                        const EigenvalueOptions& options = {});

/// What a step of plain gradient descent would meet: the point w - rate * g.
struct AlongGradient {
  double rate = 0;
  double loss = 0;             ///< at the point
  double gradient_change = 0;  ///< |g' - g| / |g|, g' the gradient at the point: predictiveness
  double smoothness = 0;       ///< |g' - g| / (rate |g|): effective smoothness ("beta")
};

/// Loss and gradient along the negative gradient, at every rate.        [Santurkar et al. 2018, 3]
/// The leaves are moved and put back bit for bit. Throws Error for a rate that is not positive and
/// for a gradient that is zero.
[[nodiscard]] std::vector<AlongGradient> along_gradient(const LossFunction& loss,
                                                        std::span<const Tensor> leaves,
                                                        std::span<const double> rates);

}  // namespace steady
