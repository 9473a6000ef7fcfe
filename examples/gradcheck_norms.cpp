// Are the hand-written backward passes of the norms right, in first and second order?
//
//   build/bin/gradcheck_norms
//
// Every norm, in every mode and with every combination of parameters, is differentiated by its tape
// and by five-point central differences in float64, with a fixed random cotangent. Expected: about
// 1e-12 in the first derivatives (limit 1e-8), 1e-11 in the second ones (limit 1e-6), and
//   35 norms, 0 failed: ...
// Exit code 0 when every row is within its limits, 1 otherwise. That the check can fail:
//   build/bin/gradcheck_norms --mutate rms
// makes the gradients of the rows whose name contains `rms` wrong by 0.1 percent.

#include <cmath>
#include <iostream>
#include <steadygrad/core/gradcheck.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>

#include "examples/common/cli.hpp"
#include "examples/common/table.hpp"

namespace {

using namespace steady;

constexpr double FirstLimit = 1e-8;
constexpr double SecondLimit = 1e-6;

struct Row {
  std::string norm;
  std::string mode;
  std::string parameters;
  std::vector<Tensor> inputs;  // x, then the parameters
  TensorFunction f;
};

Tensor random_tensor(const Shape& shape, const std::string& name, double mean, double spread) {
  Tensor t = Tensor::empty(shape, Dtype::F64);
  Random random(1, name);
  for (double& v : t.mutable_data<double>()) v = mean + spread * random.normal();
  return t;
}

/// A module's parameters become inputs of the checked function: the check moves copies of its own.
template <class M>
Row row(const std::string& name, const typename M::Options& options, const Shape& x,
        Mode mode = Mode::Train) {
  auto norm = std::make_shared<M>(options);
  norm->to(Dtype::F64);
  if constexpr (std::is_same_v<M, BatchNorm>) {
    if (options.track_running_stats) {
      for (double& v : norm->running_mean.template mutable_data<double>()) v = 0.3;
      for (double& v : norm->running_var.template mutable_data<double>()) v = 0.7;
    }
  }
  norm->train(mode == Mode::Train);
  if (mode == Mode::Frozen) norm->freeze();

  Row r{
      .norm = name, .mode = std::string(to_string(mode)), .parameters = {}, .inputs = {}, .f = {}};
  r.inputs.push_back(random_tensor(x, name + " x", 0.5, 1.0).set_requires_grad());
  for (const Parameter& p : norm->parameters()) {
    r.parameters += (r.parameters.empty() ? "" : ", ") + p.name;
    r.inputs.push_back(random_tensor(p.value.shape(), name + p.name, 1.0, 0.5).set_requires_grad());
  }
  if (r.parameters.empty()) r.parameters = "none";
  r.f = [norm](std::span<const Tensor> in) {
    std::size_t next = 1;
    if (norm->weight.defined()) norm->weight = in[next++];
    if constexpr (requires { norm->bias; }) {
      if (norm->bias.defined()) norm->bias = in[next++];
    }
    return (*norm)(in[0]);
  };
  return r;
}

void add_batch_rows(std::vector<Row>& rows) {
  const Shape image{2, 2, 3, 3};
  for (const Mode mode : {Mode::Train, Mode::Eval, Mode::Frozen}) {
    rows.push_back(row<BatchNorm>("batch", {.features = 3}, image, mode));
    rows.push_back(row<BatchNorm>("batch", {.features = 3, .bias = false}, image, mode));
    rows.push_back(row<BatchNorm>("batch", {.features = 3, .affine = false}, image, mode));
    rows.push_back(row<BatchNorm>("batch(momentum=cumulative)",
                                  {.features = 3, .momentum = std::nullopt}, image, mode));
    rows.push_back(row<BatchNorm>("batch(track=false)",
                                  {.features = 3, .track_running_stats = false}, image, mode));
  }
  rows.push_back(row<BatchNorm>("batch, rows x features", {.features = 4}, {5, 4}));
  rows.push_back(row<BatchNorm>("batch, sequences", {.features = 2}, {2, 3, 2}));
  rows.push_back(row<BatchNorm>("batch(eps=0.1)", {.features = 3, .eps = 0.1}, image));
}

void add_layer_rows(std::vector<Row>& rows) {
  const Shape image{2, 2, 2, 4};
  for (const Mode mode : {Mode::Train, Mode::Eval, Mode::Frozen}) {
    rows.push_back(row<LayerNorm>("layer", {.normalized_shape = {4}}, image, mode));
  }
  for (const bool over_sample : {false, true}) {
    const std::string name = over_sample ? "layer(over=sample)" : "layer";
    LayerNorm::Options o{.normalized_shape = {4}, .over_sample = over_sample};
    if (over_sample) rows.push_back(row<LayerNorm>(name, o, image));
    o.bias = false;
    rows.push_back(row<LayerNorm>(name, o, image));
    o.affine = false;
    rows.push_back(row<LayerNorm>(name, o, image));
  }
  rows.push_back(row<LayerNorm>("layer, two axes", {.normalized_shape = {3, 4}}, {3, 3, 4}));
  rows.push_back(row<LayerNorm>("layer(eps=0.1)", {.normalized_shape = {5}, .eps = 0.1}, {3, 5}));
}

void add_rms_rows(std::vector<Row>& rows) {
  const Shape image{2, 2, 2, 4};
  for (const Mode mode : {Mode::Train, Mode::Eval, Mode::Frozen}) {
    rows.push_back(row<RmsNorm>("rms", {.normalized_shape = {4}}, image, mode));
  }
  rows.push_back(row<RmsNorm>("rms", {.normalized_shape = {4}, .affine = false}, image));
  rows.push_back(
      row<RmsNorm>("rms(unit_offset=true)", {.normalized_shape = {4}, .unit_offset = true}, image));
  rows.push_back(row<RmsNorm>("rms, two axes", {.normalized_shape = {3, 4}}, {3, 3, 4}));
  rows.push_back(row<RmsNorm>("rms(eps=0.1)", {.normalized_shape = {5}, .eps = 0.1}, {3, 5}));
}

/// factor * x, differentiable as often as asked.
Tensor scale(const Tensor& x, double factor) {
  Tensor y = x.detached_copy();
  for (double& v : y.mutable_data<double>()) v *= factor;
  return record("scale", y, {x}, {},
                [factor](BackwardCall& call) { call.give(0, scale(call.grad(), factor)); });
}

/// y with a backward that is wrong by 0.1 percent.
Tensor with_wrong_gradient(const Tensor& y) {
  return record("wrong", y.detached_copy(), {y}, {},
                [](BackwardCall& call) { call.give(0, scale(call.grad(), 1.001)); });
}

/// Breaks the rows whose norm contains `part`.
void mutate(std::vector<Row>& rows, const std::string& part) {
  bool found = false;
  for (Row& r : rows) {
    if (r.norm.find(part) == std::string::npos) continue;
    found = true;
    r.f = [f = std::move(r.f)](std::span<const Tensor> in) { return with_wrong_gradient(f(in)); };
  }
  STEADY_CHECK(examples::OptionError, found, "--mutate: no norm's name contains '{}'", part);
}

int check(const std::vector<Row>& rows) {
  examples::Table table({"norm", "mode", "learned", "first", "second", "result"});
  int failed = 0;
  double worst_first = 0, worst_second = 0;
  for (const Row& r : rows) {
    const GradcheckResult first = gradcheck(r.f, r.inputs, {.tolerance = FirstLimit});
    const GradcheckResult second = gradcheck_second(r.f, r.inputs, {.tolerance = SecondLimit});
    const bool ok = first.ok && second.ok;
    failed += ok ? 0 : 1;
    worst_first = std::fmax(worst_first, first.error);
    worst_second = std::fmax(worst_second, second.error);
    table.add_row({r.norm, r.mode, r.parameters, fmt::format("{:.1e}", first.error),
                   fmt::format("{:.1e}", second.error), ok ? "ok" : "FAILED"});
  }
  std::cout << table
            << fmt::format(
                   "{} norms, {} failed: largest error {:.1e} in first derivatives (limit {:.0e}), "
                   "{:.1e} in second derivatives (limit {:.0e}).\n",
                   rows.size(), failed, worst_first, FirstLimit, worst_second, SecondLimit);
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Checks first and second derivatives of every norm against differences."};
  std::string mutated;
  app.add_option("--mutate", mutated,
                 "make the gradients of the norms whose name contains TEXT wrong by 0.1 percent, "
                 "to see the check fail")
      ->type_name("TEXT");
  return examples::run_program(app, argc, argv, [&] {
    std::vector<Row> rows;
    add_batch_rows(rows);
    add_layer_rows(rows);
    add_rms_rows(rows);
    if (!mutated.empty()) mutate(rows, mutated);
    return check(rows);
  });
}
