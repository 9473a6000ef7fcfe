// Optimizer updates of 10 million f32 parameters against the bytes they must move.
//   bench_optimizer [Google Benchmark's own options, e.g. --benchmark_out=FILE]
// Columns: time; GB/s of every array read plus every array written (AdamW: p, m, v, g in and p, m,
// v out, 28 bytes per parameter) in the best step; of_triad, that over the GB/s of the best triad
// out = a + s b with as many floats per array, run in turn with the steps.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/optim/adagrad.hpp>
#include <steadygrad/optim/adam.hpp>
#include <steadygrad/optim/rmsprop.hpp>
#include <steadygrad/optim/sgd.hpp>
#include <string>
#include <vector>

namespace {

using steady::Gradients;
using steady::Parameter;
using steady::Tensor;

constexpr std::int64_t Count = 10'000'000;

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  benchmark::ClobberMemory();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The floor: out = a + s b.
class Triad {
 public:
  void operator()() {
    const float *p = a_.data<float>().data(), *q = b_.data<float>().data();
    float* to = out_.mutable_data<float>().data();
    steady::parallel_for(Count, 32768, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t k = begin; k < end; ++k) to[k] = p[k] + 0.5F * q[k];
    });
  }

 private:
  Tensor a_ = Tensor::ones({Count});
  Tensor b_ = Tensor::ones({Count});
  Tensor out_ = Tensor::zeros({Count});
};

/// Steps of an optimizer whose parameters are `pieces` tensors; `arrays` read or written per step.
template <class O, class Options>
void steps(benchmark::State& state, const Options& options, int arrays, int pieces, int threads) {
  steady::set_num_threads(threads);
  std::vector<Parameter> parameters;
  Gradients gradients;
  for (int i = 0; i < pieces; ++i) {
    const Tensor value = Tensor::ones({Count / pieces}).set_requires_grad();
    parameters.push_back({fmt::format("p{}", i), value, steady::Role::Weight});
    gradients.insert(value, Tensor::full({Count / pieces}, 0.01));
  }
  O optimizer(parameters, options);
  optimizer.step(gradients);
  Triad triad;
  triad();
  double best = 1e9;
  double floor = 1e9;
  for (auto _ : state) {
    best = std::min(best, seconds_of([&] { optimizer.step(gradients); }));
    // In turn, so that a busy machine slows both.
    state.PauseTiming();
    floor = std::min(floor, seconds_of([&] { triad(); }));
    state.ResumeTiming();
  }
  const double bytes = static_cast<double>(Count) * 4.0;
  state.counters["best_ms"] = best * 1e3;
  state.counters["GB/s"] = bytes * arrays * 1e-9 / best;
  state.counters["of_triad"] = bytes * arrays / best / (bytes * 3 / floor);
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)->UseRealTime()->Unit(benchmark::kMillisecond);
}

void add_all() {
  for (const int threads : {1, 2}) {
    const std::string end = fmt::format("/threads:{}", threads);
    for (const int pieces : {1, 100}) {
      add(fmt::format("adamw/tensors:{}{}", pieces, end), [=](benchmark::State& state) {
        steps<steady::AdamW>(state, steady::AdamWOptions{}, 7, pieces, threads);
      });
    }
    add("sgd_momentum" + end, [=](benchmark::State& state) {
      steps<steady::Sgd>(state, steady::SgdOptions{.momentum = 0.9}, 5, 1, threads);
    });
    add("rmsprop" + end, [=](benchmark::State& state) {
      steps<steady::RmsProp>(state, steady::RmsPropOptions{}, 5, 1, threads);
    });
    add("adagrad" + end, [=](benchmark::State& state) {
      steps<steady::Adagrad>(state, steady::AdagradOptions{}, 5, 1, threads);
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  add_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
