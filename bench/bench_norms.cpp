// Norm kernels against the bytes they must move and against oneDNN's own primitives.
//   bench_norms [--json FILE] [Google Benchmark's own options, e.g.
//   --benchmark_filter=layer/forward]
// Columns: time; GB/s of x + y (forward) or x + dy + dx (backward); floor, the fraction of the
// speed of a copy (forward) or triad (backward) of the same size measured in this process.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/batch_norm_kernel.hpp>
#include <steadygrad/layers/norm/layer_norm_kernel.hpp>
#include <steadygrad/layers/norm/rms_norm_kernel.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "bench/timing.hpp"
#include "norm_peers.hpp"

namespace {

using steady::ColumnShape;
using steady::RowShape;
using steady::bench::Arrays;
using steady::bench::Buffer;
using steady::bench::onednn_batch_norm;
using steady::bench::onednn_layer_norm;
using steady::bench::seconds_of;

// --- the floors ----------------------------------------------------------------------------------

/// Best time of a copy (reads = 1) or triad (reads = 2) over arrays of n floats.
double floor_seconds(std::int64_t n, int reads, int threads) {
  static std::map<std::tuple<std::int64_t, int, int>, double> known;
  double& best = known[{n, reads, threads}];
  if (best > 0) return best;
  Buffer<float> a(n), b(n), c(n);
  const auto pass = [&] {
    steady::parallel_for(n, 65536, [&](std::int64_t begin, std::int64_t end) {
      const float *p = a.data(), *q = b.data();
      float* out = c.data();
      if (reads == 1) {
        std::copy(p + begin, p + end, out + begin);
      } else {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) out[i] = p[i] + 0.5F * q[i];
      }
    });
    benchmark::ClobberMemory();
  };
  best = seconds_of(pass);
  for (int i = 0; i < 30; ++i) best = std::min(best, seconds_of(pass));
  return best;
}

void measure(benchmark::State& state, std::int64_t n, int reads, int threads,
             const std::function<void()>& body) {
  steady::set_num_threads(threads);
  omp_set_num_threads(threads);
  const double floor = floor_seconds(n, reads, threads);
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    body();
    benchmark::ClobberMemory();
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const double seconds = elapsed.count() / static_cast<double>(state.iterations());
  state.counters["GB/s"] = static_cast<double>(n) * 4 * (reads + 1) * 1e-9 / seconds;
  state.counters[reads == 1 ? "of_copy" : "of_triad"] = floor / seconds;
}

// --- the benchmarks ------------------------------------------------------------------------------

void layer_norm(benchmark::State& state, RowShape s, bool backward, bool peer, int threads) {
  Arrays a(s.rows, s.width, 3 * s.rows, steady::layer_norm_workspace(s));
  steady::layer_norm_forward<float>(s, 1e-5, a.x, a.gamma, a.beta, a.y, a.stats);
  omp_set_num_threads(threads);
  const std::function<void()> forward = [&] {
    steady::layer_norm_forward<float>(s, 1e-5, a.x, a.gamma, a.beta, a.y, a.stats);
  };
  const std::function<void()> back = [&] {
    steady::layer_norm_backward<float>(s, a.x, a.dy, a.gamma, a.stats, a.dx, a.dgamma, a.dbeta,
                                       a.workspace);
  };
  measure(state, s.elements(), backward ? 2 : 1, threads,
          peer       ? onednn_layer_norm(a, s.rows, s.width, backward)
          : backward ? back
                     : forward);
}

void rms_norm(benchmark::State& state, RowShape s, bool backward, int threads) {
  Arrays a(s.rows, s.width, s.rows, steady::rms_norm_workspace(s));
  steady::rms_norm_forward<float>(s, 1e-6, false, a.x, a.gamma, a.y, a.stats);
  const std::function<void()> forward = [&] {
    steady::rms_norm_forward<float>(s, 1e-6, false, a.x, a.gamma, a.y, a.stats);
  };
  const std::function<void()> back = [&] {
    steady::rms_norm_backward<float>(s, false, a.x, a.dy, a.gamma, a.stats, a.dx, a.dgamma,
                                     a.workspace);
  };
  measure(state, s.elements(), backward ? 2 : 1, threads, backward ? back : forward);
}

struct Images {
  std::int64_t count, channels, size;
};

void batch_norm(benchmark::State& state, Images i, bool backward, bool peer, int threads) {
  const ColumnShape s{i.count * i.size * i.size, i.channels};
  Arrays a(s.rows, s.channels, 3 * s.channels, 1);
  Buffer<double> workspace(steady::column_workspace(s));
  std::vector<steady::Moments> moments(static_cast<std::size_t>(s.channels));
  const std::function<void()> forward = [&] {
    steady::batch_norm_forward<float>(s, 1e-5, a.x, a.gamma, a.beta, a.y, moments, a.stats,
                                      workspace);
  };
  forward();
  const std::function<void()> back = [&] {
    steady::batch_norm_backward<float>(s, a.x, a.dy, a.gamma, a.stats, a.dx, a.dgamma, a.dbeta,
                                       workspace);
  };
  omp_set_num_threads(threads);
  measure(state, s.elements(), backward ? 2 : 1, threads,
          peer ? onednn_batch_norm(a, i.count, i.size, i.channels, backward)
               : (backward ? back : forward));
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)->UseRealTime()->Unit(benchmark::kMicrosecond);
}

void add_all() {
  const std::vector<RowShape> rows{{1024, 128, 128},   {2048, 384, 384},   {4096, 768, 768},
                                   {8192, 1024, 1024}, {2048, 4096, 4096}, {16384, 768, 768},
                                   {1024, 7168, 7168}};
  const std::vector<Images> images{
      {64, 16, 32}, {128, 32, 28}, {64, 64, 32}, {32, 128, 16}, {256, 512, 1}};
  for (const int threads : {1, 2}) {
    for (const bool backward : {false, true}) {
      const std::string way = backward ? "backward/" : "forward/";
      const std::string end = "/threads:" + std::to_string(threads);
      for (const RowShape& s : rows) {
        const std::string shape = std::to_string(s.rows) + "x" + std::to_string(s.width) + end;
        for (const bool peer : {false, true}) {
          add((peer ? "onednn_layer/" : "layer/") + way + shape,
              [=](benchmark::State& state) { layer_norm(state, s, backward, peer, threads); });
        }
        add("rms/" + way + shape,
            [=](benchmark::State& state) { rms_norm(state, s, backward, threads); });
      }
      for (const Images& i : images) {
        const std::string side = std::to_string(i.size);
        const std::string shape = std::to_string(i.count) + "x" + side + "x" + side + "x" +
                                  std::to_string(i.channels) + end;
        for (const bool peer : {false, true}) {
          add((peer ? "onednn_batch/" : "batch/") + way + shape,
              [=](benchmark::State& state) { batch_norm(state, i, backward, peer, threads); });
        }
      }
    }
  }
}

/// Turns `--json FILE` and `--json=FILE` into the library's own flags.
std::vector<std::string> translated(int argc, char** argv) {
  std::vector<std::string> out;
  for (int i = 0; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "--json" && i + 1 < argc) word = std::string("--json=") + argv[++i];
    if (word.rfind("--json=", 0) == 0) {
      out.push_back("--benchmark_out=" + word.substr(7));
      out.push_back("--benchmark_out_format=json");
    } else {
      out.push_back(word);
    }
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words = translated(argc, argv);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  int count = static_cast<int>(pointers.size());
  benchmark::Initialize(&count, pointers.data());
  if (benchmark::ReportUnrecognizedArguments(count, pointers.data())) return 2;
  add_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
