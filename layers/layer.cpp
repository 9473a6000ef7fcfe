#include <steadygrad/layers/layer.hpp>

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

}  // namespace

Tensor Layer::operator()(const Tensor& x) {
  return run(x, [this](const Tensor& input) { return forward(input); });
}

Tensor Layer::run(const Tensor& x, const std::function<Tensor(const Tensor&)>& function) {
  const PathScope scope(name());
  try {
    STEADY_CHECK(
        Error, running_layers == 0 || parent() != nullptr,
        "{}: called inside another layer but not registered in it: make it with add<...>()",
        describe());
    const Running running;
    check_initialized();
    return function(x);
  } catch (Error& error) {
    error.locate(path());
    throw;
  }
}

}  // namespace steady
