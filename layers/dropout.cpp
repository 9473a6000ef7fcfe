#include <steadygrad/layers/dropout.hpp>

#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/dropout.hpp>

namespace steady {

Dropout::Dropout(Options options) : o(options) {
  STEADY_CHECK(Error, o.p >= 0.0 && o.p <= 1.0, "Dropout: p must be in [0, 1]; got {}", o.p);
}

void Dropout::on_initialize(std::uint64_t seed) {
  seed_ = seed;
  calls_ = 0;
}

void Dropout::on_clone(const Module& original) {
  const auto& from = static_cast<const Dropout&>(original);
  seed_ = from.seed_;
  calls_ = from.calls_;
}

Tensor Dropout::forward(const Tensor& x) {
  if (mode() != Mode::Train || o.p == 0.0) return x;
  Tensor y = dropout(x, o.p, seed_, path(), calls_);
  if (state_updates()) ++calls_;
  return y;
}

}  // namespace steady
