// How do time and memory of a training step grow with batch, depth, width and context?
//
//   build/bin/bench_scaling [--threads 2] [--steps 7] [--json FILE]
//
// A GPT decoder of 2 layers of 64 features, 4 heads, 4 x 64 tokens, vocabulary 65, AdamW; one size
// at a time is multiplied by 1, 2, 4 and 8. Columns: median time of a step; what a forward keeps
// for backward, plainly and with recompute; the most bytes of all tensors during a step. The last
// line of a group is the exponent p of the fit size^p (least squares in the logarithms).
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <steadygrad/steadygrad.hpp>
#include <string>
#include <vector>

#include "bench/timing.hpp"
#include "bench/trainer.hpp"

namespace {

using namespace steady;
using namespace steady::bench;

struct Point {
  std::int64_t size = 0;
  double ms = 0.0, kept = 0.0, kept_recomputed = 0.0, peak = 0.0;  // bytes in MB
};

struct Axis {
  const char* name;
  std::function<void(DecoderSizes&, std::int64_t factor)> grow;
  std::function<std::int64_t(const DecoderSizes&)> size;
};

const std::vector<Axis>& axes() {
  static const std::vector<Axis> all{
      {"batch", [](DecoderSizes& s, std::int64_t f) { s.batch *= f; },
       [](const DecoderSizes& s) { return s.batch; }},
      {"layers", [](DecoderSizes& s, std::int64_t f) { s.layers *= f; },
       [](const DecoderSizes& s) { return s.layers; }},
      {"features",
       [](DecoderSizes& s, std::int64_t f) {
         s.dim *= f;
         s.hidden *= f;
       },
       [](const DecoderSizes& s) { return s.dim; }},
      {"context", [](DecoderSizes& s, std::int64_t f) { s.context *= f; },
       [](const DecoderSizes& s) { return s.context; }}};
  return all;
}

/// A step of these sizes, on tokens of its own.
struct Run {
  explicit Run(const DecoderSizes& s) {
    Random random(1, "bench_scaling");
    for (Tensor* t : {&ids, &targets}) {
      *t = Tensor::empty({s.batch, s.context}, Dtype::I64);
      for (std::int64_t& id : t->mutable_data<std::int64_t>()) id = random.below(s.vocabulary);
    }
    trainer = make_decoder(s, {ids.data<std::int64_t>(), targets.data<std::int64_t>()});
    (void)trainer->step();
  }
  Tensor ids, targets;
  std::unique_ptr<Trainer> trainer;
};

Point measure(const Axis& axis, std::int64_t factor, int steps) {
  DecoderSizes s{.layers = 2, .dim = 64, .hidden = 256, .context = 64, .batch = 4};
  axis.grow(s, factor);
  Point point{.size = axis.size(s)};
  const std::int64_t before = memory_stats().live;
  {
    Run run(s);
    reset_peak_memory();
    std::vector<double> seconds;
    for (int i = 0; i < steps; ++i) {
      seconds.push_back(seconds_of([&] { (void)run.trainer->step(); }));
    }
    point.ms = 1000.0 * median(seconds);
    point.peak = static_cast<double>(memory_stats().peak - before) / 1e6;
    point.kept = static_cast<double>(run.trainer->activation_bytes()) / 1e6;
  }
  s.recompute = true;
  point.kept_recomputed = static_cast<double>(Run(s).trainer->activation_bytes()) / 1e6;
  return point;
}

double exponent(const std::vector<Point>& points, double Point::*value) {
  double mx = 0.0, my = 0.0, xx = 0.0, xy = 0.0;
  const auto n = static_cast<double>(points.size());
  for (const Point& p : points) {
    mx += std::log(static_cast<double>(p.size)) / n;
    my += std::log(p.*value) / n;
  }
  for (const Point& p : points) {
    const double dx = std::log(static_cast<double>(p.size)) - mx;
    xx += dx * dx;
    xy += dx * (std::log(p.*value) - my);
  }
  return xy / xx;
}

}  // namespace

int main(int argc, char** argv) {
  int threads = num_threads();
  int steps = 7;
  std::string json;
  CLI::App app{"Measures how training steps grow with their sizes."};
  app.add_option("--threads", threads, "")->check(CLI::Range(1, MaxThreads))->capture_default_str();
  app.add_option("--steps", steps, "timed steps of each size")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--json", json, "file for the numbers");
  CLI11_PARSE(app, argc, argv);
  set_num_threads(threads);

  nlohmann::json results = nlohmann::json::array();
  std::printf("%d threads\n%-16s %10s %10s %20s %10s\n", threads, "", "ms", "kept MB",
              "recomputing: kept MB", "peak MB");
  for (const Axis& axis : axes()) {
    std::vector<Point> points;
    for (const std::int64_t factor : {1, 2, 4, 8}) {
      const Point p = measure(axis, factor, steps);
      std::printf("%-8s %7lld %10.2f %10.2f %20.2f %10.2f\n", axis.name,
                  static_cast<long long>(p.size), p.ms, p.kept, p.kept_recomputed, p.peak);
      std::fflush(stdout);
      results.push_back({{"axis", axis.name},
                         {"size", p.size},
                         {"ms", p.ms},
                         {"kept_megabytes", p.kept},
                         {"kept_recomputing_megabytes", p.kept_recomputed},
                         {"peak_megabytes", p.peak}});
      points.push_back(p);
    }
    std::printf("%-16s %10.2f %10.2f %20.2f %10.2f\n", "  exponent", exponent(points, &Point::ms),
                exponent(points, &Point::kept), exponent(points, &Point::kept_recomputed),
                exponent(points, &Point::peak));
  }
  if (!json.empty()) std::ofstream(json) << results.dump(1) << '\n';
  return 0;
}
