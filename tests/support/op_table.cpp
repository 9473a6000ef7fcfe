#include "tests/support/op_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady::testing_support {
namespace {

using Faults = std::vector<std::string>;

/// Standard normal, of float32 precision.
Tensor cotangent_like(const Tensor& y) {
  Random random(11, "op table cotangent");
  Tensor c = Tensor::empty(y.shape(), Dtype::F64);
  for (double& v : c.mutable_data<double>()) v = static_cast<float>(random.normal());
  return c.detached_copy(y.dtype());
}

/// What one forward and backward gave.
struct Result {
  Tensor y;
  std::vector<Tensor> gradients;  // one per differentiable input, undefined where there is none
};

Result forward_backward(const TensorFunction& f, const std::vector<Tensor>& inputs) {
  Tape tape;
  const Tensor y = f(inputs);
  const Gradients gradients = tape.backward(y, {.cotangent = cotangent_like(y)});
  Result result{.y = y.detached_copy(), .gradients = {}};
  for (const Tensor& input : inputs) {
    if (!input.requires_grad()) continue;
    const Tensor* g = gradients.find(input);
    result.gradients.push_back(g != nullptr ? g->detached_copy() : Tensor());
  }
  return result;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.storage().bytes(), b.storage().bytes(),
                     static_cast<std::size_t>(a.numel() * size_of(a.dtype()))) == 0;
}

/// Calls compare(name, tensor of a, tensor of b) for the output and every gradient.
template <class F>
void for_each_pair(const Result& a, const Result& b, F&& compare) {
  compare(std::string("output"), a.y, b.y);
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    compare("gradient " + std::to_string(i), a.gradients[i], b.gradients[i]);
  }
}

void compare_bits(const char* what, const Result& a, const Result& b, Faults& faults) {
  for_each_pair(a, b, [&](const std::string& name, const Tensor& u, const Tensor& v) {
    if (!same_bits(u, v)) faults.push_back(name + " differs in bits " + what);
  });
}

/// Largest |a - b| / max(1, |b|); infinite when exactly one of two elements is NaN.
double relative_difference(const Tensor& a, const Tensor& b) {
  const Tensor u = a.detached_copy(Dtype::F64);
  const Tensor v = b.detached_copy(Dtype::F64);
  double scale = 1.0;
  double error = 0.0;
  for (std::size_t i = 0; i < v.data<double>().size(); ++i) {
    const double got = u.data<double>()[i];
    const double want = v.data<double>()[i];
    if (got == want || (std::isnan(got) && std::isnan(want))) continue;
    const double difference = std::abs(got - want);
    error = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                   : std::max(error, difference);
    if (std::isfinite(want)) scale = std::max(scale, std::abs(want));
  }
  return error / scale;
}

class RestoreThreads {
 public:
  RestoreThreads() = default;
  explicit RestoreThreads(int now) { set_num_threads(now); }
  ~RestoreThreads() { set_num_threads(before_); }
  RestoreThreads(const RestoreThreads&) = delete;
  RestoreThreads& operator=(const RestoreThreads&) = delete;

 private:
  int before_ = num_threads();
};

// --- the tests of a row ------------------------------------------------------------------------

void check_first_order(const OpRow& row, Faults& faults) {
  const RestoreThreads one(1);  // thousands of tiny calls
  const auto result =
      gradcheck(row.f, make_inputs(row.inputs, Dtype::F64), {.tolerance = row.tolerance});
  if (!result.ok) faults.push_back("gradient: " + result.message);
}

void check_second_order(const OpRow& row, Faults& faults) {
  const RestoreThreads one(1);
  const GradcheckOptions options{.tolerance = row.second_tolerance};
  if (row.refuses_second.empty()) {
    const auto result = gradcheck_second(row.f, make_inputs(row.inputs, Dtype::F64), options);
    if (!result.ok) faults.push_back("second derivative: " + result.message);
    return;
  }
  try {
    (void)gradcheck_second(row.f, make_inputs(row.inputs, Dtype::F64), options);
    faults.push_back("second derivative: given, but the row says that it is refused");
  } catch (const Error& error) {
    if (std::string(error.what()).find(row.refuses_second) == std::string::npos) {
      faults.push_back("second derivative: the refusal does not name '" + row.refuses_second +
                       "': " + error.what());
    }
  }
}

void check_defined_and_finite(const OpRow& row, const Result& result, Faults& faults) {
  const auto check = [&](const std::string& name, const Tensor& t, const Tensor&) {
    if (!t.defined()) {
      faults.push_back(name + " is missing");
      return;
    }
    if (row.may_be_nonfinite || !is_float(t.dtype())) return;
    const Tensor values = t.detached_copy(Dtype::F64);
    if (!std::ranges::all_of(values.data<double>(), [](double v) { return std::isfinite(v); })) {
      faults.push_back(name + " holds NaN or inf in memory filled with NaN");
    }
  };
  for_each_pair(result, result, check);
}

/// Defined gradients, repeatability, memory filled with NaN and untouched inputs.
/// CASES AG-09, AG-15, LN-21.
void check_repeatability(const OpRow& row, Dtype dtype, Faults& faults) {
  const std::vector<Tensor> inputs = make_inputs(row.inputs, dtype);
  const Result first = forward_backward(row.f, inputs);
  compare_bits("when repeated", first, forward_backward(row.f, inputs), faults);
  {
    const PoisonMemory poison;
    const Result poisoned = forward_backward(row.f, inputs);
    check_defined_and_finite(row, poisoned, faults);
    compare_bits("in memory filled with NaN", first, poisoned, faults);
  }
  const std::vector<Tensor> fresh = make_inputs(row.inputs, dtype);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!same_bits(inputs[i], fresh[i])) {
      faults.push_back("input " + std::to_string(i) + " was changed");
    }
  }
}

void check_float32(const OpRow& row, Faults& faults) {
  const Result single = forward_backward(row.f, make_inputs(row.inputs, Dtype::F32));
  const Result reference = forward_backward(row.f, make_inputs(row.inputs, Dtype::F64));
  for_each_pair(single, reference, [&](const std::string& name, const Tensor& a, const Tensor& b) {
    if (!a.defined() || !b.defined()) return;
    const double error = relative_difference(a, b);
    if (!(error <= row.float32_tolerance)) {
      faults.push_back(fmt::format("{}: float32 is off by {:.3g} (allowed {:.3g})", name, error,
                                   row.float32_tolerance));
    }
  });
}

/// CASES RT-01.
void check_threads(const OpRow& row, Faults& faults) {
  const RestoreThreads restore;
  for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
    const std::vector<Tensor> inputs =
        make_inputs(row.large.empty() ? row.inputs : row.large, dtype);
    set_num_threads(1);
    const Result one = forward_backward(row.f, inputs);
    for (const int threads : {2, 3, 8}) {
      set_num_threads(threads);
      const std::string what = fmt::format("between 1 and {} threads", threads);
      compare_bits(what.c_str(), one, forward_backward(row.f, inputs), faults);
    }
  }
}

/// Entries and storages return to where they were, with and without a backward. CASES AG-03.
void check_leaks(const OpRow& row, Faults& faults) {
  const std::vector<Tensor> inputs = make_inputs(row.inputs, Dtype::F64);
  (void)forward_backward(row.f, inputs);  // scratch memory that stays is there from now on
  const std::int64_t entries = Tape::live_entries();
  const std::int64_t blocks = memory_stats().live_blocks;
  for (int i = 0; i < 3; ++i) {
    {
      Tape tape;
      (void)row.f(inputs);
    }
    (void)forward_backward(row.f, inputs);
  }
  if (Tape::live_entries() != entries) faults.emplace_back("tape entries stay behind");
  if (memory_stats().live_blocks != blocks) faults.emplace_back("storages stay behind");
}

}  // namespace

std::vector<std::string> op_faults(const OpRow& row) {
  Faults faults;
  const auto run = [&](const char* what, const std::function<void()>& check) {
    try {
      check();
    } catch (const std::exception& error) {
      faults.push_back(std::string(what) + " threw: " + error.what());
    }
  };
  run("gradient", [&] { check_first_order(row, faults); });
  run("second derivative", [&] { check_second_order(row, faults); });
  for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
    run("repeating", [&] { check_repeatability(row, dtype, faults); });
  }
  run("float32", [&] { check_float32(row, faults); });
  run("threads", [&] { check_threads(row, faults); });
  run("leaks", [&] { check_leaks(row, faults); });
  return faults;
}

namespace {

class OpTest : public testing::Test {
 public:
  explicit OpTest(OpRow row) : row_(std::move(row)) {}
  void TestBody() override {
    for (const std::string& fault : op_faults(row_)) ADD_FAILURE() << row_.name << ": " << fault;
  }

 private:
  OpRow row_;
};

}  // namespace

bool register_ops(const std::string& suite, std::vector<OpRow> rows) {
  for (OpRow& row : rows) {
    const std::string name = row.name;
    testing::RegisterTest(("OpTable_" + suite).c_str(), name.c_str(), nullptr, nullptr, __FILE__,
                          __LINE__,
                          [row = std::move(row)]() -> testing::Test* { return new OpTest(row); });
  }
  return true;
}

}  // namespace steady::testing_support
