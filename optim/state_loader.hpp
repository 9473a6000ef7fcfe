#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <steadygrad/core/parameter.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace steady::detail {

/// An i64 tensor of rank 0.
[[nodiscard]] Tensor count_tensor(std::int64_t count);

/// Reads a state name by name into copies and notes every fault; finish() throws them together, so
/// that nothing need be changed before all is known to be sound. The state must outlive it.
class StateLoader {
 public:
  /// Throws Error for a name that comes twice.
  StateLoader(const char* owner, const State& state);

  [[nodiscard]] bool has(const std::string& name) const { return given_.contains(name); }
  /// A copy of the tensor of that name; undefined, and a fault, when it is not as it should be.
  Tensor take(const std::string& name, const Shape& shape, Dtype dtype);
  /// A count of at least `low` from an i64 tensor of rank 0; 0 after a fault.
  std::int64_t take_count(const std::string& name, std::int64_t low);
  /// A finite number, not negative, from an f64 tensor of rank 0; 0 after a fault.
  double take_rate(const std::string& name);
  /// The same for a number in [0, 1).
  double take_share(const std::string& name);
  /// The f64 tensor of rank 0 of that name must be `value`; absent it stands for `usual`, unless
  /// there is none of these.
  void expect(const std::string& name, double value, std::optional<double> usual = std::nullopt);
  /// Notes a name that nothing asks for.
  void refuse(const std::string& name) { refused_.push_back(name); }
  /// Throws Error that lists every fault: names missing, names not taken, tensors that do not fit.
  void finish() const;

 private:
  const char* owner_;
  std::map<std::string, const Tensor*, std::less<>> given_;
  std::vector<std::string> missing_;
  std::vector<std::string> misfit_;
  std::vector<std::string> refused_;
};

}  // namespace steady::detail
