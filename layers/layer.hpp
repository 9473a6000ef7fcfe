#pragma once

#include <functional>
#include <steadygrad/core/tensor.hpp>
#include <steadygrad/layers/module.hpp>
#include <string_view>
#include <vector>

namespace steady {

class Layer;

/// Takes the measures of a layer, one number under a name each: "rstd_max", 3.1.
using MeasureSink = std::function<void(std::string_view name, double value)>;
/// Gives the measures of a call that has just been done.
using Measures = std::function<void(const MeasureSink& sink)>;

/// Told of the calls of the layers it is attached to. It must change nothing that they compute, and
/// what it throws leaves the call.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  /// The call begins; `x` is its input.
  virtual void on_enter(Layer& layer, const Tensor& x) = 0;
  /// The call made `y` from `x`; `measures` works during this call only, and costs time.
  virtual void on_result(Layer& layer, const Tensor& x, const Tensor& y,
                         const Measures& measures) = 0;
  /// The call is over, also by an exception. Follows every on_enter that returned.
  virtual void on_leave(Layer& layer) noexcept = 0;
  /// The layer dies.
  virtual void on_destroy(Layer& layer) noexcept = 0;
};

/// A module with one tensor in and one out. Derived classes override forward; callers use the call
/// operator, which is where paths are kept, errors get the layer's path, a layer that runs inside
/// another without being registered in it is found out, and observers see what goes in and out.
class Layer : public Module {
 public:
  Layer() = default;
  ~Layer() override;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  /// Runs forward. Throws Error when a parameter has no values yet, or when this layer is called by
  /// another one without being part of a model: its parameters would silently not be trained.
  Tensor operator()(const Tensor& x);

  virtual Tensor forward(const Tensor& x) = 0;

  /// Numbers that say more of this family of layers than moments of tensors do, for a forward of
  /// `x` that has just been done; which ones is said by each layer (none here). Changes nothing,
  /// neither parameters nor buffers nor random streams, and records nothing.
  virtual void measure(const Tensor& x, const MeasureSink& sink) const;

  /// Attaches an observer, which must outlive the layer or be detached before. While no thread runs
  /// the layer.
  void attach(LayerObserver& observer);
  void detach(LayerObserver& observer);
  /// Whether somebody sees what goes in and out, so that it has to exist.
  [[nodiscard]] bool observed() const { return !observers_.empty(); }

 protected:
  /// What the call operator does around forward, around another function of x: for layers whose
  /// calls take more than one tensor. `measures` stands for measure(x, sink) then. Throws as the
  /// call operator.
  Tensor run(const Tensor& x, const std::function<Tensor(const Tensor&)>& function,
             const Measures& measures = {});

 private:
  std::vector<LayerObserver*> observers_;
};

}  // namespace steady
