#pragma once

#include <cstdint>
#include <optional>
#include <steadygrad/core/gradcheck.hpp>
#include <string>
#include <vector>

/// One row per differentiable operation; every row gets the same tests:
///
///   const bool table = register_ops("Activation", {
///       {.name = "relu", .f = [](Inputs in) { return relu(in[0]); },
///        .inputs = {real({3, 5}).away_from({0})}, .large = {real({300, 257})}},
///   });
///
/// is the test suite OpTable_Activation with a test `relu`.
namespace steady::testing_support {

using Inputs = std::span<const Tensor>;

/// How one input of a row is made.
struct OpInput {
  Shape shape{};
  double low = -2.0;
  double high = 2.0;  ///< uniform in [low, high); integers: in low .. high-1
  bool integer = false;
  bool differentiable = true;
  bool distinct = false;          ///< a random permutation of equally spaced values: no near ties
  std::vector<double> kinks{};    ///< every value keeps 0.05 away from these
  std::optional<Tensor> given{};  ///< these values instead (f64 or i64)

  /// Keeps the values away from points where the function has no derivative.
  [[nodiscard]] OpInput away_from(std::vector<double> points) const;
  /// An input without a gradient.
  [[nodiscard]] OpInput constant() const;
  [[nodiscard]] OpInput without_near_ties() const;
};

/// A floating input, uniform in [low, high).
[[nodiscard]] OpInput real(const Shape& shape, double low = -2.0, double high = 2.0);
/// An i64 input, uniform in low .. high-1.
[[nodiscard]] OpInput integers(const Shape& shape, std::int64_t low, std::int64_t high);
/// Given values: f64 (with a gradient) or i64.
[[nodiscard]] OpInput values(const Tensor& tensor);

/// The inputs as leaves, floating ones in `dtype`. They are numbers of float32, so that a float32
/// run and a float64 run start from the same ones; every call makes the same ones.
[[nodiscard]] std::vector<Tensor> make_inputs(const std::vector<OpInput>& inputs, Dtype dtype);

struct OpRow {
  std::string name;             ///< of the test: letters, digits and underscores
  TensorFunction f;             ///< works in the dtype of its inputs
  std::vector<OpInput> inputs;  ///< small: every element is checked by differences
  /// Larger inputs for the comparison of thread counts: several chunks of work, so that the split
  /// matters. `inputs` when empty.
  std::vector<OpInput> large = {};
  double tolerance = 1e-8;          ///< of gradcheck
  double second_tolerance = 1e-6;   ///< of gradcheck_second
  double float32_tolerance = 1e-5;  ///< relative to max(1, largest value)
  /// Set: there is no second derivative, and the refusal must contain this text (the op's name).
  std::string refuses_second = {};
  /// The output and the gradients may hold NaN or inf.
  bool may_be_nonfinite = false;
};

/// Everything that is wrong with the row, a line each; empty when it is right. The tests:
/// gradients by differences, first and second order; a defined gradient for every differentiable
/// input; float32 against float64; the same bits when repeated, for 1, 2, 3 and 8 threads and in
/// memory that was filled with NaN; untouched inputs; and no tape entry or storage left behind.
[[nodiscard]] std::vector<std::string> op_faults(const OpRow& row);

/// Registers one test per row in the suite OpTable_<suite>. For static initialisers.
bool register_ops(const std::string& suite, std::vector<OpRow> rows);

}  // namespace steady::testing_support
