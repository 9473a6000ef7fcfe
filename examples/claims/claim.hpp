#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace steady::examples::claims {

/// A closed interval for a measured number. NaN is in no band.
struct Band {
  double low;
  double high;
  [[nodiscard]] bool contains(double value) const { return value >= low && value <= high; }
};
[[nodiscard]] Band below(double high);
[[nodiscard]] Band above(double low);
/// expected * (1 +- share)
[[nodiscard]] Band around(double expected, double share);
/// "< 0.1", "> 3", "0.97 .. 1.04", "= 1".
[[nodiscard]] std::string to_string(const Band& band);
/// Four significant digits.
[[nodiscard]] std::string format_number(double value);

/// One number that was measured, and what it had to be.
struct Finding {
  std::string what;
  std::optional<double> expected;  ///< none for an inequality
  double measured = 0;
  Band band{};
  bool control = false;  ///< of a variant for which the claim is false: must be outside its band
};

/// What a claim finds with one seed: the same findings in the same order whatever the seed.
class Findings {
 public:
  /// A number that the claim predicts.
  void check(std::string what, std::optional<double> expected, double measured, const Band& band);
  /// The same measure taken of a variant that must miss the band.
  void control(std::string what, double measured, const Band& band);
  [[nodiscard]] std::span<const Finding> items() const { return items_; }

 private:
  std::vector<Finding> items_;
};

/// A published result and the experiment that looks for it.
struct Claim {
  std::string_view id;
  std::string_view paper;
  std::string_view sentence;
  /// One experiment; all its random numbers are a function of the seed.
  void (*run)(Findings& findings, std::uint64_t seed);
  bool alone = false;  ///< compares running times: nothing else may run beside it
};

/// Every claim, in the order of the table.
[[nodiscard]] std::span<const Claim> all_claims();
/// The claims of these ids in the order of the table; all for no id. Throws Error naming the known
/// ids for an unknown one.
[[nodiscard]] std::vector<Claim> select_claims(std::span<const std::string> ids);

/// A finding over several seeds.
struct Row {
  Finding finding;  ///< measured: the mean
  double min = 0;
  double max = 0;
  bool ok = false;  ///< a check: in its band with every seed; a control: outside with every seed
};

struct Verdict {
  Claim claim;
  std::vector<Row> rows;
  double seconds = 0;  ///< of all seeds together, on one thread
  [[nodiscard]] bool ok() const;
};

/// Runs every claim with every seed; a claim with a seed is one piece of work for one thread, and
/// no result depends on the number of threads. Throws what the experiments throw.
[[nodiscard]] std::vector<Verdict> judge(std::span<const Claim> claims,
                                         std::span<const std::uint64_t> seeds);

}  // namespace steady::examples::claims
