#include <steadygrad/layers/layer.hpp>

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/path.hpp>

namespace steady {
namespace {

thread_local int running_layers = 0;

class Running {
 public:
  Running() { ++running_layers; }
  ~Running() { --running_layers; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

/// One call as the observers see it.
class ObservedCall {
 public:
  ObservedCall(const std::vector<LayerObserver*>& observers, Layer& layer, const Tensor& x)
      : observers_(observers), layer_(layer), x_(x) {
    try {
      for (; entered_ < observers_.size(); ++entered_) observers_[entered_]->on_enter(layer_, x_);
    } catch (...) {
      leave();
      throw;
    }
  }
  ~ObservedCall() { leave(); }
  ObservedCall(const ObservedCall&) = delete;
  ObservedCall& operator=(const ObservedCall&) = delete;

  void result(const Tensor& y, const Measures& measures) {
    for (LayerObserver* observer : observers_) observer->on_result(layer_, x_, y, measures);
  }

 private:
  void leave() noexcept {
    entered_ = std::min(entered_, observers_.size());  // one may have gone meanwhile
    while (entered_ > 0) observers_[--entered_]->on_leave(layer_);
  }

  const std::vector<LayerObserver*>& observers_;
  Layer& layer_;
  const Tensor& x_;
  std::size_t entered_ = 0;
};

}  // namespace

Layer::~Layer() {
  for (LayerObserver* observer : observers_) observer->on_destroy(*this);
}

Tensor Layer::operator()(const Tensor& x) {
  return run(x, [this](const Tensor& input) { return forward(input); });
}

Tensor Layer::run(const Tensor& x, const std::function<Tensor(const Tensor&)>& function,
                  const Measures& measures) {
  const PathScope scope(name());
  try {
    STEADY_CHECK(
        Error, running_layers == 0 || parent() != nullptr,
        "{}: called inside another layer but not registered in it: make it with add<...>()",
        describe());
    const Running running;
    check_initialized();
    if (observers_.empty()) return function(x);
    ObservedCall call(observers_, *this, x);
    Tensor y = function(x);
    call.result(
        y, measures ? measures : [&](const MeasureSink& sink) { measure(x, sink); });
    return y;
  } catch (Error& error) {
    error.locate(path());
    throw;
  }
}

void Layer::measure(const Tensor& x, const MeasureSink& sink) const {
  (void)x;
  (void)sink;
}

void Layer::attach(LayerObserver& observer) { observers_.push_back(&observer); }
void Layer::detach(LayerObserver& observer) { std::erase(observers_, &observer); }

}  // namespace steady
