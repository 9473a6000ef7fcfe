// Are the hand-written backward passes of the norms right, in first and second order?
//
//   build/bin/gradcheck_norms
//
// Every norm that NormSpec knows, in every mode, with its defaults and with each of its options set
// to its other values in turn, is differentiated by its tape and by five-point central differences
// in float64, with a fixed random cotangent; and so are the wrappers of weights and the norms that
// take a condition. Expected: about 1e-12 in the first derivatives (limit 1e-8), 1e-11 in the
// second ones (limit 1e-6), and a last line `... norms, 0 failed: ...`. Exit code 0 when every row
// is within its limits, 1 otherwise. That the check can fail:
//   build/bin/gradcheck_norms --mutate rms
// makes the gradients of the rows whose name contains `rms` wrong by 0.1 percent.

#include <cmath>
#include <iostream>
#include <map>
#include <steadygrad/core/gradcheck.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/layer_function.hpp>
#include <steadygrad/layers/norm/adaptive_norm.hpp>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/norm_grammar.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>
#include <steadygrad/layers/norm/spectral_norm.hpp>
#include <steadygrad/layers/norm/unit_sphere.hpp>
#include <steadygrad/layers/norm/weight_norm.hpp>
#include <steadygrad/layers/norm/weight_standardization.hpp>

#include "examples/common/cli.hpp"
#include "examples/common/table.hpp"

namespace {

using namespace steady;

constexpr double FirstLimit = 1e-8;
constexpr double SecondLimit = 1e-6;

struct Row {
  std::string norm;
  std::string mode;
  std::string learned;
  LayerFunction function;
};

void fill(Tensor values, const std::string& name, double mean, double spread) {
  Random random(1, name);
  for (double& v : values.mutable_data<double>()) v = mean + spread * random.normal();
}

/// A row for a layer at x of a shape: values that no symmetry makes special, running statistics
/// away from 0 and 1.
Row row(const std::string& name, std::shared_ptr<Layer> layer, const Shape& shape,
        Mode mode = Mode::Train) {
  layer->initialize(1);
  layer->to(Dtype::F64);
  for (const NamedTensor& buffer : layer->state()) {
    if (buffer.name.ends_with("running_mean")) fill(buffer.value, "mean", 0.3, 0.1);
    if (buffer.name.ends_with("running_var")) fill(buffer.value, "var", 0.7, 0.01);
  }
  Row r{.norm = name, .mode = std::string(to_string(mode)), .learned = {}, .function = {}};
  for (const Parameter& p : layer->parameters()) {
    r.learned += (r.learned.empty() ? "" : ", ") + p.name;
    fill(p.value, name + p.name, 1.0, 0.5);
  }
  if (r.learned.empty()) r.learned = "none";
  layer->train(mode == Mode::Train);
  if (mode == Mode::Frozen) layer->freeze();
  Tensor x = Tensor::empty(shape, Dtype::F64);
  fill(x, name + " x", 0.5, 1.0);
  r.function = as_function(*layer, x);
  r.function.f = [layer, f = std::move(r.function.f)](std::span<const Tensor> in) { return f(in); };
  return r;
}

/// Option values for norms whose defaults are made for wider layers than the checked ones, or whose
/// derivatives are by intention not those of their values (a detached factor).
const std::map<std::string, std::string> Narrow = {
    {"prms", "p=0.5"},   {"group", "groups=2"},       {"adanorm", "detach=false"},
    {"ghost", "size=2"}, {"instance", "affine=true"}, {"renorm", "rmax=1.01, dmax=0.001"}};

/// Options of norms that round what they compute: steps, which have no derivative to check.
bool is_simulation(const std::string& option) {
  return option == "simulate" || option == "accumulate" || option == "cast";
}

/// The norm by its defaults, then with each option set to each of its other values.
std::vector<std::string> variants(const detail::NormGrammar& grammar) {
  const auto narrow = Narrow.find(grammar.name);
  const std::string fixed = narrow == Narrow.end() ? "" : narrow->second;
  const auto spec = [&](const std::string& option) {
    const std::string join = fixed.empty() || option.empty() ? "" : ", ";
    const std::string inside = fixed + join + option;
    return inside.empty() ? grammar.name : fmt::format("{}({})", grammar.name, inside);
  };
  std::vector<std::string> result{spec("")};
  for (const detail::NormOption& option : grammar.options) {
    if (fixed.starts_with(option.name + "=") || is_simulation(option.name)) continue;
    for (const std::string& word : option.words) {
      if (word != option.otherwise) result.push_back(spec(option.name + "=" + word));
    }
    if (option.name == "eps") result.push_back(spec("eps=0.1"));
  }
  return result;
}

void add_spec_rows(std::vector<Row>& rows) {
  for (const std::string& line : norm_grammars()) {
    for (const std::string& spec : variants(detail::NormGrammar::parse(line))) {
      for (const Mode mode : {Mode::Train, Mode::Eval, Mode::Frozen}) {
        rows.push_back(row(spec, make_norm(NormSpec::parse(spec), 4), {2, 2, 3, 4}, mode));
      }
    }
  }
}

/// The same norms over other shapes.
void add_shape_rows(std::vector<Row>& rows) {
  const auto norm = [](const char* spec, std::int64_t features) {
    return make_norm(NormSpec::parse(spec), features);
  };
  rows.push_back(row("batch, rows x features", norm("batch", 4), {5, 4}));
  rows.push_back(row("batch, sequences", norm("batch", 2), {2, 3, 2}));
  rows.push_back(row("instance, no affine", norm("instance", 4), {2, 2, 3, 4}));
  rows.push_back(row("lrn(size=3, alpha=0.5, beta=0.6, k=2)",
                     norm("lrn(size=3, alpha=0.5, beta=0.6, k=2)", 4), {2, 2, 3, 4}));
  rows.push_back(row("layer, two axes",
                     std::make_shared<LayerNorm>(LayerNorm::Options{.normalized_shape = {3, 4}}),
                     {3, 3, 4}));
  rows.push_back(row("rms, two axes",
                     std::make_shared<RmsNorm>(RmsNorm::Options{.normalized_shape = {3, 4}}),
                     {3, 3, 4}));
}

/// The wrappers that normalize a weight. u and v of a SpectralNorm stay: a check iterates nothing.
void add_wrapper_rows(std::vector<Row>& rows) {
  const Linear::Options linear{.in = 4, .out = 3};
  const Conv2d::Options conv{.in = 2, .out = 3, .kernel = 2};
  const auto add = [&]<class L>(const std::string& name, typename L::Options options,
                                const Shape& shape) {
    rows.push_back(row(name, std::make_shared<L>(std::move(options)), shape));
  };
  const Shape vectors{2, 4}, images{2, 3, 3, 2};
  add.operator()<WeightNorm<Linear>>("weight_norm(linear)", {.inner = linear}, vectors);
  add.operator()<WeightNorm<Linear>>("weight_norm(linear, dim=1)", {.inner = linear, .dim = 1},
                                     vectors);
  add.operator()<WeightNorm<Linear>>("weight_norm(linear, whole)",
                                     {.inner = linear, .dim = std::nullopt}, vectors);
  add.operator()<WeightNorm<Conv2d>>("weight_norm(conv)", {.inner = conv}, images);
  for (const Mode mode : {Mode::Train, Mode::Eval}) {
    rows.push_back(
        row("spectral_norm(linear)",
            std::make_shared<SpectralNorm<Linear>>(SpectralNorm<Linear>::Options{.inner = linear}),
            vectors, mode));
  }
  add.operator()<SpectralNorm<Conv2d>>("spectral_norm(conv)", {.inner = conv}, images);
  add.operator()<WeightStandardization<Linear>>("weight_standardization(linear)", {.inner = linear},
                                                vectors);
  add.operator()<WeightStandardization<Conv2d>>("weight_standardization(conv)", {.inner = conv},
                                                images);
}

/// A norm made from a condition, which is learned here so that it is checked like a parameter.
struct Conditioned : Layer {
  explicit Conditioned(const char* spec) : kind(NormSpec::parse(spec)) {}
  const NormSpec kind;
  AdaptiveNorm& norm = add<AdaptiveNorm>("norm", {.features = 4, .condition = 2, .norm = kind});
  Tensor& condition = add_parameter("condition", Tensor::ones({3, 2}), Role::Weight);
  Tensor forward(const Tensor& x) override { return norm(x, condition); }
};

/// A step on the unit sphere towards a branch.
struct Sphere : Layer {
  SphereUpdate& update = add<SphereUpdate>("update", {.features = 4});
  Tensor& branch = add_parameter("branch", Tensor::ones({3, 2, 4}), Role::Weight);
  Tensor forward(const Tensor& x) override { return update(x, branch); }
};

/// Norms with two inputs.
void add_pair_rows(std::vector<Row>& rows) {
  for (const char* spec : {"layer(affine=false)", "rms(affine=false)"}) {
    rows.push_back(
        row(fmt::format("adaptive {}", spec), std::make_shared<Conditioned>(spec), {3, 2, 4}));
  }
  rows.push_back(row("unit sphere update", std::make_shared<Sphere>(), {3, 2, 4}));
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
    r.function.f = [f = std::move(r.function.f)](std::span<const Tensor> in) {
      return with_wrong_gradient(f(in));
    };
  }
  STEADY_CHECK(examples::OptionError, found, "--mutate: no norm's name contains '{}'", part);
}

int check(const std::vector<Row>& rows) {
  examples::Table table({"norm", "mode", "learned", "first", "second", "result"});
  int failed = 0;
  double worst_first = 0, worst_second = 0;
  for (const Row& r : rows) {
    const GradcheckResult first =
        gradcheck(r.function.f, r.function.inputs, {.tolerance = FirstLimit});
    const GradcheckResult second =
        gradcheck_second(r.function.f, r.function.inputs, {.tolerance = SecondLimit});
    const bool ok = first.ok && second.ok;
    failed += ok ? 0 : 1;
    worst_first = std::fmax(worst_first, first.error);
    worst_second = std::fmax(worst_second, second.error);
    table.add_row({r.norm, r.mode, r.learned, fmt::format("{:.1e}", first.error),
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
    add_spec_rows(rows);
    add_shape_rows(rows);
    add_wrapper_rows(rows);
    add_pair_rows(rows);
    if (!mutated.empty()) mutate(rows, mutated);
    return check(rows);
  });
}
