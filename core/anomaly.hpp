#pragma once

#include <span>
#include <steadygrad/core/tensor.hpp>
#include <string>

namespace steady {

/// Which values anomaly mode reports.
struct AnomalyOptions {
  bool nan = true;
  bool inf = true;
};

/// While alive, every operation on this thread, forward and backward, checks what it made and
/// throws NonFiniteError at the first one that produced a NaN or an infinity: operation, layer
/// path, shape, number of bad elements, and whether they came in from outside. Costs one pass over
/// every result. The former setting returns when it ends, also by an exception.
class AnomalyMode {
 public:
  explicit AnomalyMode(AnomalyOptions options = {});
  ~AnomalyMode();
  AnomalyMode(const AnomalyMode&) = delete;
  AnomalyMode& operator=(const AnomalyMode&) = delete;

 private:
  AnomalyOptions before_;
};

namespace detail {

[[nodiscard]] bool anomaly_mode();

/// While alive, operations are part of a backward: what they make is reported under the name of the
/// operation whose backward runs, by check_backward.
class InBackward {
 public:
  InBackward();
  ~InBackward();
  InBackward(const InBackward&) = delete;
  InBackward& operator=(const InBackward&) = delete;
};

/// Throws NonFiniteError when an output holds a value that anomaly mode reports.
void check_forward(const char* op, std::span<const Tensor> outputs, std::span<const Tensor> inputs);
/// The same for the gradient that `op`'s backward gave for its input `input`.
void check_backward(const char* op, const std::string& path, int input, const Tensor& gradient);

}  // namespace detail
}  // namespace steady
