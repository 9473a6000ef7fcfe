#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <steadygrad/core/tensor.hpp>
#include <string>
#include <vector>

/// Reference values computed with PyTorch in float64: tests/golden/*.h5.
namespace steady::testing_support {

/// One group of a reference file: a case (/op/case) or a part of one. Every reader throws IoError
/// naming file and path when what it asks for is missing and has no default.
class GoldenCase {
 public:
  [[nodiscard]] const std::string& path() const { return path_; }
  /// The last part of the path.
  [[nodiscard]] std::string name() const;

  /// Whether there is a dataset or group of that relative path ("param/bias").
  [[nodiscard]] bool has(const std::string& relative) const;
  /// A dataset: f64, or i64 for integers.
  [[nodiscard]] Tensor tensor(const std::string& relative) const;
  /// Names of the datasets in a sub-group, sorted; empty when there is none.
  [[nodiscard]] std::vector<std::string> datasets(const std::string& relative = "") const;
  /// The groups inside this one, sorted.
  [[nodiscard]] std::vector<GoldenCase> groups() const;
  [[nodiscard]] GoldenCase group(const std::string& relative) const;
  /// Error of PyTorch's own float32 for a dataset; 0 when the file says nothing.
  [[nodiscard]] double float32_error(const std::string& relative) const;

  [[nodiscard]] bool has_attribute(const std::string& name) const;
  [[nodiscard]] std::int64_t attribute_int(const std::string& name) const;
  [[nodiscard]] std::int64_t attribute_int(const std::string& name, std::int64_t otherwise) const;
  [[nodiscard]] std::vector<std::int64_t> attribute_ints(const std::string& name) const;
  [[nodiscard]] double attribute_double(const std::string& name) const;
  [[nodiscard]] double attribute_double(const std::string& name, double otherwise) const;
  [[nodiscard]] std::vector<double> attribute_doubles(const std::string& name) const;
  [[nodiscard]] std::string attribute_string(const std::string& name) const;
  [[nodiscard]] std::string attribute_string(const std::string& name,
                                             const std::string& otherwise) const;

 private:
  friend class Golden;
  GoldenCase(std::shared_ptr<const struct GoldenFile> file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}
  std::shared_ptr<const struct GoldenFile> file_;
  std::string path_;
};

/// A file or folder of tests/golden.
[[nodiscard]] std::filesystem::path golden_path(const std::string& name);

/// A reference file.
class Golden {
 public:
  explicit Golden(const std::string& file);
  /// The cases of one top-level group, sorted by name; throws IoError when there are none.
  [[nodiscard]] std::vector<GoldenCase> cases(const std::string& group) const;
  /// Any group by its path.
  [[nodiscard]] GoldenCase group(const std::string& path) const;

 private:
  std::shared_ptr<const struct GoldenFile> file_;
};

/// |actual - expected| <= tolerance * max(1, max |expected|) for every element of two tensors of
/// one shape; NaN and infinities must be equal. Integers must be equal.
[[nodiscard]] testing::AssertionResult close(const Tensor& actual, const Tensor& expected,
                                             double tolerance = 1e-10);
/// The same against a dataset, with the tolerance for the dtype of `actual`: f64 `tolerance`
/// relative to max(1, max |expected|), f32 10 * float32_error + 4e-6 * max(1, max |expected|).
[[nodiscard]] testing::AssertionResult close(const Tensor& actual, const GoldenCase& golden,
                                             const std::string& relative, double tolerance = 1e-10);
void expect_close(const Tensor& actual, const Tensor& expected, double tolerance = 1e-10);
void expect_close(const Tensor& actual, const GoldenCase& golden, const std::string& relative,
                  double tolerance = 1e-10);

/// The in/ and param/ tensors of a case by name.
using GoldenInputs = std::map<std::string, Tensor>;

/// Runs f on the inputs of the case in float64 and in float32, and compares the output (the one
/// dataset of grad_out/) and the gradient of everything in grad/ with the file.
void expect_golden(const GoldenCase& golden, const std::function<Tensor(GoldenInputs& in)>& f,
                   double tolerance = 1e-10);

/// [N, C, spatial...] as [N, spatial..., C], and back. Values only, not recorded.
[[nodiscard]] Tensor nchw_to_nhwc(const Tensor& x);
[[nodiscard]] Tensor nhwc_to_nchw(const Tensor& x);

}  // namespace steady::testing_support
