#include <steadygrad/layers/probe_log.hpp>

namespace steady {
namespace {

std::string numbered(std::string_view name, int call) {
  return call == 0 ? std::string(name) : fmt::format("{}#{}", name, call);
}

bool is_parameter(Observed what) {
  return what == Observed::Parameter || what == Observed::ParameterGradient ||
         what == Observed::Update;
}

}  // namespace

ProbeSink log_probe(RunLog& log) {
  return [&log](const ProbeStep& step) {
    for (const ProbeSample& sample : step.samples) {
      const TensorStats& s = sample.stats;
      log.append({is_parameter(sample.what) ? "parameters" : "layers", sample.path,
                  numbered(to_string(sample.what), sample.call)},
                 step.step,
                 {{"count", static_cast<double>(s.count)},
                  {"mean", s.mean},
                  {"std", s.std},
                  {"rms", s.rms},
                  {"max_abs", s.max_abs},
                  {"zeros", s.zeros},
                  {"non_finite", s.non_finite}},
                 s.histogram);
    }
    for (const ProbeMeasure& m : step.measures) {
      const bool parameter = m.name == "update_ratio" || m.name == "gradient_cosine";
      log.append({parameter ? "parameters" : "layers", m.path, numbered(m.name, m.call)}, step.step,
                 {{"value", m.value}});
    }
  };
}

}  // namespace steady
