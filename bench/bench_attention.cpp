// Attention kernels against the speed of a matrix product.
//   bench_attention [Google Benchmark's own options, e.g. --benchmark_filter=forward]
// Columns: time; GFLOP/s of the two (forward) or five (backward) products over the pairs of query
// and key that see each other; of_gemm, the fraction of the best sgemm of 256 x 256 x 256 measured
// in this process on as many threads.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <steadygrad/core/kernels/attention.hpp>
#include <steadygrad/core/kernels/gemm.hpp>
#include <steadygrad/core/parallel.hpp>
#include <string>
#include <vector>

namespace {

using Index = std::int64_t;
using Floats = std::vector<float>;

Floats random_floats(Index n) {
  Floats x(static_cast<std::size_t>(n));
  std::uint32_t state = 1;
  for (float& v : x) {
    state = state * 1664525U + 1013904223U;
    v = static_cast<float>(state >> 8) * 0x1p-23F - 1;
  }
  return x;
}

/// GFLOP/s of one thread, best of 50.
double sgemm_peak() {
  constexpr Index N = 256;
  static const double best = [] {
    steady::set_num_threads(1);
    const Floats a = random_floats(N * N);
    const Floats b = random_floats(N * N);
    Floats c(a.size());
    double seconds = 1;
    for (int i = 0; i < 50; ++i) {
      const auto start = std::chrono::steady_clock::now();
      steady::kernels::gemm<float>({.m = N, .n = N, .k = N}, 1, a, b, 0, c);
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      seconds = std::min(seconds, time.count());
    }
    return 2e-9 * N * N * N / seconds;
  }();
  return best;
}

struct Problem {
  const char* name;
  steady::kernels::Attention a;
};

void measure(benchmark::State& state, const Problem& problem, bool backward, int threads) {
  const steady::kernels::Attention& a = problem.a;
  const double peak = sgemm_peak() * threads;
  steady::set_num_threads(threads);
  const Floats q = random_floats(a.batch * a.queries * a.heads * a.width);
  const Floats k = random_floats(a.batch * a.capacity * a.kv_heads * a.width);
  const Floats v = random_floats(a.batch * a.capacity * a.kv_heads * a.width);
  Floats y(q.size()), dq(q.size()), dk(k.size()), dv(k.size());
  std::vector<double> lse(static_cast<std::size_t>(a.batch * a.heads * a.queries));
  const auto forward = [&] { steady::kernels::attention_forward<float>(a, q, k, v, y, lse); };
  forward();
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    if (backward) {
      steady::kernels::attention_backward<float>(a, q, q, k, v, lse, dq, dk, dv);
    } else {
      forward();
    }
    benchmark::ClobberMemory();
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const double seconds = elapsed.count() / static_cast<double>(state.iterations());
  const double pairs = a.causal ? 0.5 * static_cast<double>(a.keys * (a.keys + 1))
                                : static_cast<double>(a.queries * a.keys);
  const double rate = (backward ? 5 : 2) * 2e-9 * pairs *
                      static_cast<double>(a.batch * a.heads * a.width) / seconds;
  state.counters["GFLOP/s"] = rate;
  state.counters["of_gemm"] = rate / peak;
}

Problem problem(const char* name, Index batch, Index heads, Index kv_heads, Index tokens,
                Index width, bool causal) {
  return {name,
          {.batch = batch,
           .queries = tokens,
           .keys = tokens,
           .capacity = tokens,
           .heads = heads,
           .kv_heads = kv_heads,
           .width = width,
           .causal = causal,
           .scale = 0.125}};
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<Problem> problems = {
      problem("B16_H4_T128_d32_causal", 16, 4, 4, 128, 32, true),
      problem("B16_H4_T128_d32", 16, 4, 4, 128, 32, false),
      problem("B8_H6_T256_d64_causal", 8, 6, 6, 256, 64, true),
      problem("B8_H6_T256_d64", 8, 6, 6, 256, 64, false),
      problem("B4_H8_Hkv2_T256_d64_causal", 4, 8, 2, 256, 64, true),
      problem("B1_H8_T1024_d64_causal", 1, 8, 8, 1024, 64, true),
  };
  for (const Problem& p : problems) {
    for (const bool backward : {false, true}) {
      for (const int threads : {1, 2}) {
        const std::string name = std::string(backward ? "backward/" : "forward/") + p.name +
                                 "/threads:" + std::to_string(threads);
        benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
          measure(state, p, backward, threads);
        })->UseRealTime();
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
