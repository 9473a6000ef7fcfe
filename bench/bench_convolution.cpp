// How long do the convolutions of a training step take, and how near do they come to the fastest
// matrix product of this machine?
//
//   build/bin/bench_convolution [--threads 2] [--rounds 15] [--json FILE]
//
// Every convolution of configurations (a) and (b) of bench_train is three passes: y, dx (but of the
// first one) and dW. Passes take turns; times are medians. of_best divides by the rate of a product
// of 1024 x 1024 matrices of the same process; the last line of a configuration is a step's sum.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <steadygrad/core/kernels/convolution.hpp>
#include <steadygrad/core/kernels/gemm.hpp>
#include <steadygrad/core/parallel.hpp>
#include <string>
#include <vector>

#include "bench/timing.hpp"

namespace {

using namespace steady;
using namespace steady::bench;
using Index = std::int64_t;

/// Convolutions of one geometry: 3x3 with padding 1, or 1x1.
struct Layer {
  Index size, in, out, kernel, stride;
  int count;
};

struct Config {
  const char* name;
  std::vector<Layer> layers;
};

const std::vector<Config>& configs() {
  static const std::vector<Config> all{
      {"a", {{28, 1, 32, 3, 1, 1}, {28, 32, 64, 3, 1, 1}, {14, 64, 64, 3, 1, 1}}},
      {"b",
       {{32, 3, 16, 3, 1, 1},
        {32, 16, 16, 3, 1, 6},
        {32, 16, 32, 3, 2, 1},
        {32, 16, 32, 1, 2, 1},
        {16, 32, 32, 3, 1, 5},
        {16, 32, 64, 3, 2, 1},
        {16, 32, 64, 1, 2, 1},
        {8, 64, 64, 3, 1, 5}}}};
  return all;
}

struct Pass {
  std::string config, name;
  int count;
  double work;  // GFLOP
  std::function<void()> run;
  std::vector<double> seconds{};
};

/// The passes of a layer on 64 images, with buffers of their own.
void add_passes(const Config& config, const Layer& layer, std::vector<Pass>& all) {
  const kernels::Conv2dGeometry g{.batch = 64,
                                  .height = layer.size,
                                  .width = layer.size,
                                  .in_channels = layer.in,
                                  .out_channels = layer.out,
                                  .kernel = {layer.kernel, layer.kernel},
                                  .stride = {layer.stride, layer.stride},
                                  .padding = {layer.kernel / 2, layer.kernel / 2}};
  using Buffer = std::shared_ptr<std::vector<float>>;
  const auto buffer = [](Index size) {
    return std::make_shared<std::vector<float>>(static_cast<std::size_t>(size), 0.25F);
  };
  const Buffer x = buffer(g.x_size()), y = buffer(g.y_size()), w = buffer(g.weight_size()),
               dx = buffer(g.x_size()), dw = buffer(g.weight_size());
  const std::string name =
      fmt::format("{0}x{0}, {1} to {2}, {3}x{3}{4}", layer.size, layer.in, layer.out, layer.kernel,
                  layer.stride == 1 ? "" : ", stride 2");
  const double work =
      2e-9 * static_cast<double>(g.y_size() * layer.in * layer.kernel * layer.kernel);
  const auto add = [&](const char* what, std::function<void()> run) {
    all.push_back({config.name, name + ": " + what, layer.count, work, std::move(run)});
  };
  add("y", [=] { kernels::conv2d_forward<float>(g, *x, *w, {}, *y); });
  if (layer.in > 3) add("dx", [=] { kernels::conv2d_backward_input<float>(g, *y, *w, *dx); });
  add("dW", [=] { kernels::conv2d_backward_weight<float>(g, *x, *y, *dw, {}); });
}

nlohmann::json report(const std::string& config, const std::vector<Pass>& all, double best) {
  std::printf("(%s)%37s %8s %10s %8s\n", config.c_str(), "times", "ms each", "GFLOP/s", "of_best");
  double work = 0, seconds = 0;
  nlohmann::json rows = nlohmann::json::array();
  for (const Pass& p : all) {
    if (p.config != config) continue;
    const double each = median(p.seconds);
    std::printf("%-34s %5d %8.3f %10.1f %8.2f\n", p.name.c_str(), p.count, 1e3 * each,
                p.work / each, p.work / each / best);
    rows.push_back({{"pass", p.name}, {"ms", 1e3 * each}, {"gflops", p.work / each}});
    work += p.work * p.count;
    seconds += each * p.count;
  }
  std::printf("%-34s %14.2f %10.1f %8.2f\n\n", "all of a step", 1e3 * seconds, work / seconds,
              work / seconds / best);
  return {{"config", config}, {"ms", 1e3 * seconds}, {"passes", rows}};
}

}  // namespace

int main(int argc, char** argv) {
  int threads = num_threads();
  int rounds = 15;
  std::string json;
  CLI::App app{"Times the convolutions of training steps."};
  app.add_option("--threads", threads, "")->check(CLI::Range(1, MaxThreads))->capture_default_str();
  app.add_option("--rounds", rounds, "timed calls of each pass")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--json", json, "file for the numbers");
  CLI11_PARSE(app, argc, argv);
  set_num_threads(threads);

  std::vector<Pass> all;
  for (const Config& config : configs())
    for (const Layer& layer : config.layers) add_passes(config, layer, all);
  constexpr Index N = 1024;
  const std::vector<float> a(N * N, 0.25F), b(N * N, 0.5F);
  std::vector<float> c(N * N);
  std::vector<double> product;
  const auto multiply = [&] { kernels::gemm<float>({.m = N, .n = N, .k = N}, 1, a, b, 0, c); };
  multiply();
  for (const Pass& p : all) p.run();
  for (int round = 0; round < rounds; ++round) {
    product.push_back(seconds_of(multiply));
    for (Pass& p : all) p.seconds.push_back(seconds_of(p.run));
  }
  const double best = 2e-9 * static_cast<double>(N * N * N) / median(product);
  std::printf("%d threads, %d rounds, 64 images; product of matrices %.1f GFLOP/s\n", threads,
              rounds, best);
  nlohmann::json results{{"threads", threads}, {"product_gflops", best}, {"configs", {}}};
  for (const Config& config : configs())
    results["configs"].push_back(report(config.name, all, best));
  if (!json.empty()) std::ofstream(json) << results.dump(1) << '\n';
  return 0;
}
