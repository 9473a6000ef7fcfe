// How near do the matrix products of a training step come to the best product of this machine?
//
//   build/bin/bench_gemm [--threads 2] [--rounds 9] [--json FILE]
//
// Every linear map of configurations (c), (d) and (e) of bench_train is three products: y = x W^T,
// dx = dy W and dW = dy^T x. Each is timed as the library runs it, in turn with its own cut into
// tiles on OpenBLAS alone, and afterwards as OpenBLAS runs it with its own threads, which would
// disturb the others while they wait for work. of_best divides by the fastest rate of any product
// by any of the three in this process; the last line of a configuration weighs the products by
// their work and their number.
#include <cblas.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <steadygrad/core/kernels/gemm.hpp>
#include <steadygrad/core/parallel.hpp>
#include <string>
#include <vector>

#include "bench/timing.hpp"

namespace {

using namespace steady;
using namespace steady::bench;
using Index = std::int64_t;

/// A linear map of a model and how often it is there.
struct Map {
  const char* name;
  Index tokens, in, out;
  int count;
};

struct Config {
  const char* name;
  std::vector<Map> maps;
};

const std::vector<Config>& configs() {
  static const std::vector<Config> all{{"c",
                                        {{"q, k, v", 2048, 128, 384, 4},
                                         {"out", 2048, 128, 128, 4},
                                         {"up", 2048, 128, 512, 4},
                                         {"down", 2048, 512, 128, 4},
                                         {"head", 2048, 128, 65, 1}}},
                                       {"d",
                                        {{"q, k, v, out", 2048, 384, 384, 24},
                                         {"up", 2048, 384, 1536, 6},
                                         {"down", 2048, 1536, 384, 6},
                                         {"head", 2048, 384, 65, 1}}},
                                       {"e",
                                        {{"q, out", 1024, 512, 512, 16},
                                         {"k, v", 1024, 512, 128, 16},
                                         {"gate, up", 1024, 512, 1408, 16},
                                         {"down", 1024, 1408, 512, 8},
                                         {"head", 1024, 512, 6400, 1}}}};
  return all;
}

struct Product {
  std::string name;
  kernels::GemmShape shape;
  int count;
  std::vector<double> ours, tiles, openblas;  // seconds
  [[nodiscard]] double work() const {
    return 2e-9 * static_cast<double>(shape.m * shape.n * shape.k);
  }
};

std::vector<Product> products(const Map& map) {
  const std::string name(map.name);
  const auto product = [&](const char* what, const kernels::GemmShape& shape) {
    return Product{name + what, shape, map.count, {}, {}, {}};
  };
  return {product(": y", {.m = map.tokens, .n = map.out, .k = map.in, .transpose_b = true}),
          product(": dx", {.m = map.tokens, .n = map.in, .k = map.out}),
          product(": dW", {.m = map.out, .n = map.in, .k = map.tokens, .transpose_a = true})};
}

/// A call of each kind outside the clock first. threads: of OpenBLAS; 0: ours.
void time_round(Product& p, int threads) {
  const kernels::GemmShape& s = p.shape;
  const std::vector<float> a(static_cast<std::size_t>(s.m * s.k), 0.25F);
  const std::vector<float> b(static_cast<std::size_t>(s.k * s.n), 0.5F);
  std::vector<float> c(static_cast<std::size_t>(s.m * s.n));
  const auto add_time = [](std::vector<double>& times, const std::function<void()>& run) {
    run();
    times.push_back(seconds_of(run));
  };
  if (threads == 0) {
    const auto ours = [&] { kernels::gemm<float>(s, 1, a, b, 0, c); };
    add_time(p.ours, ours);
    const bool both = kernels::set_library_sgemm(false);
    add_time(p.tiles, ours);
    kernels::set_library_sgemm(both);
    return;
  }
  openblas_set_num_threads(threads);
  add_time(p.openblas, [&] {
    cblas_sgemm(CblasRowMajor, s.transpose_a ? CblasTrans : CblasNoTrans,
                s.transpose_b ? CblasTrans : CblasNoTrans, static_cast<int>(s.m),
                static_cast<int>(s.n), static_cast<int>(s.k), 1, a.data(),
                static_cast<int>(s.transpose_a ? s.m : s.k), b.data(),
                static_cast<int>(s.transpose_b ? s.k : s.n), 0, c.data(), static_cast<int>(s.n));
  });
  openblas_set_num_threads(1);
}

double rate(const Product& p, const std::vector<double>& seconds) {
  return p.work() / median(seconds);
}

nlohmann::json report(const Config& config, const std::vector<Product>& all, double best) {
  std::printf("(%s)%24s %6s %6s %6s %6s %14s %14s %14s %8s\n", config.name, "", "m", "n", "k",
              "times", "ours GFLOP/s", "OpenBLAS tiles", "OpenBLAS", "of_best");
  double work = 0.0, seconds = 0.0;
  nlohmann::json rows = nlohmann::json::array();
  for (const Product& p : all) {
    const double ours = rate(p, p.ours), tiles = rate(p, p.tiles), blas = rate(p, p.openblas);
    std::printf("%-27s %6lld %6lld %6lld %6d %14.1f %14.1f %14.1f %8.2f\n", p.name.c_str(),
                static_cast<long long>(p.shape.m), static_cast<long long>(p.shape.n),
                static_cast<long long>(p.shape.k), p.count, ours, tiles, blas, ours / best);
    rows.push_back({{"product", p.name},
                    {"ours_gflops", ours},
                    {"tiles_gflops", tiles},
                    {"openblas_gflops", blas}});
    work += p.work() * p.count;
    seconds += median(p.ours) * p.count;
  }
  std::printf("%-27s %42.1f %38.2f\n\n", "all, weighted", work / seconds, work / seconds / best);
  return {{"config", config.name}, {"of_best", work / seconds / best}, {"products", rows}};
}

}  // namespace

int main(int argc, char** argv) {
  int threads = num_threads();
  int rounds = 9;
  std::string json;
  CLI::App app{"Times the matrix products of training steps."};
  app.add_option("--threads", threads, "")->check(CLI::Range(1, MaxThreads))->capture_default_str();
  app.add_option("--rounds", rounds, "timed calls of each product")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--json", json, "file for the numbers");
  CLI11_PARSE(app, argc, argv);
  set_num_threads(threads);

  std::vector<std::vector<Product>> timed;
  double best = 0.0;
  for (const Config& config : configs()) {
    std::vector<Product>& all = timed.emplace_back();
    for (const Map& map : config.maps) {
      for (Product& p : products(map)) all.push_back(std::move(p));
    }
  }
  for (const int blas_threads : {0, threads}) {
    for (int round = 0; round < rounds; ++round) {
      for (std::vector<Product>& all : timed) {
        for (Product& p : all) time_round(p, blas_threads);
      }
    }
  }
  for (const std::vector<Product>& all : timed) {
    for (const Product& p : all) {
      best = std::max({best, rate(p, p.ours), rate(p, p.tiles), rate(p, p.openblas)});
    }
  }
  std::printf("%d threads, %d rounds, %s; best %.1f GFLOP/s\n", threads, rounds,
              kernels::gemm_libraries().c_str(), best);
  nlohmann::json results{{"threads", threads}, {"best_gflops", best}, {"configs", {}}};
  for (std::size_t i = 0; i < timed.size(); ++i) {
    results["configs"].push_back(report(configs()[i], timed[i], best));
  }
  if (!json.empty()) std::ofstream(json) << results.dump(1) << '\n';
  return 0;
}
