// How to write a norm of your own, have its derivatives checked, and put it into the study by name.
//
//   build/bin/own_norm                                     checks first and second derivatives
//   build/bin/own_norm --plan examples/plans/own_norm.json trains it beside the built-in norms
//
// Mean-absolute-value norm: y = x / (mean|x| + eps) * weight over the last axis. With options on
// the command line the program is stability_study, which now knows `mean_abs` too; build/bin/report
// makes the report. Expected without: both errors below their limits, exit code 0.
#include <cstdio>
#include <steadygrad/steadygrad.hpp>

#include "examples/study/program.hpp"

using namespace steady;

/// x: [..., D], weight: [D]. With r = 1 / (mean|x| + eps) and u = dy weight:
///   dx = u r - sign(x) r^2 mean(u x),   dweight = sum over rows of dy x r
Tensor mean_abs_norm(const Tensor& x, const Tensor& weight, double eps) {
  check_same_dtype("mean_abs_norm", x, weight);
  const auto scale = [eps](const Tensor& t) { return 1.0 / (mean(abs(t), {-1}, true) + eps); };
  Tensor y, sign;
  {
    const NoRecord by_hand;  // the values; how they are differentiated is said below
    y = x * scale(x) * weight;
    sign = where(x, x / abs(x), x);
  }
  return record("mean_abs_norm", y, {x, weight}, {x, weight, sign}, [scale](BackwardCall& call) {
    const Tensor &dy = call.grad(), &in = call.saved(0), &w = call.saved(1), &s = call.saved(2);
    const Tensor r = scale(in), u = dy * w;
    call.give(0, [&] { return u * r - s * r * r * mean(u * in, {-1}, true); });
    call.give(1, [&] { return sum_to(dy * in * r, w.shape()); });
  });
}

struct MeanAbsNorm : Layer {
  struct Options {
    std::int64_t features = 0;
    double eps = 1e-5;
  };
  explicit MeanAbsNorm(const Options& options) : o(options) {}
  const Options o;
  Tensor& weight = add_parameter("weight", Tensor::ones({o.features}), Role::NormScale);
  Tensor forward(const Tensor& x) override { return mean_abs_norm(x, weight, o.eps); }
};

int main(int argc, char** argv) {
  register_norm("mean_abs(eps=1e-5[0..])", [](const NormOptions& options, std::int64_t features) {
    return std::make_unique<MeanAbsNorm>(
        MeanAbsNorm::Options{.features = features, .eps = options.number("eps")});
  });
  if (argc > 1) return examples::stability_study(argc, argv);

  Tensor x = Tensor::empty({3, 2, 5}, Dtype::F64);
  Random random(1, "x");
  for (double& v : x.mutable_data<double>()) v = random.normal();
  const std::unique_ptr<Layer> norm = make_norm(NormSpec::parse("mean_abs(eps=0.1)"), 5);
  norm->to(Dtype::F64);
  const auto [f, inputs] = as_function(*norm, x);
  const GradcheckResult first = gradcheck(f, inputs), second = gradcheck_second(f, inputs);
  std::printf("mean_abs: first derivative %s (error %.1e), second %s (error %.1e)\n",
              first.ok ? "ok" : "WRONG", first.error, second.ok ? "ok" : "WRONG", second.error);
  return first.ok && second.ok ? 0 : 1;
}
