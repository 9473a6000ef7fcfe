// What does a fused pass save, alone and in a training step?
//
//   build/bin/bench_fusions [--threads 1] [--repeats 41]
//
// Every line takes the separate and the fused form in turn in one process and gives the median of
// the ratios of neighbouring processor times (below 1: the fused one takes less). Forms: a sum and
// its norm, forward and backward (the gradient that flows past the norm joins in); whole training
// steps of decoders, whose streams are computed piece by piece while an observer watches the norms.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <span>
#include <steadygrad/core/kernels/accumulate.hpp>
#include <steadygrad/layers/norm/layer_norm_kernel.hpp>
#include <steadygrad/layers/norm/rms_norm_kernel.hpp>
#include <steadygrad/steadygrad.hpp>
#include <string>
#include <vector>

#include "bench/timing.hpp"

namespace {

using namespace steady;
using namespace steady::bench;
using Floats = std::vector<float>;
using Run = std::function<void()>;

Floats random_floats(std::int64_t n) {
  Floats x(static_cast<std::size_t>(n));
  std::uint32_t state = 1;
  for (float& v : x) {
    state = state * 1664525U + 1013904223U;
    v = static_cast<float>(state >> 8) * 0x1p-23F - 1;
  }
  return x;
}

/// Processor time of the whole process: what other programs take does not count.
double milliseconds(const Run& run) {
  const std::clock_t start = std::clock();
  run();
  return 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

/// Both forms in turn; prints medians and the median ratio.
void contest(const std::string& title, int repeats, const Run& separate, const Run& fused) {
  for (int i = 0; i < 3; ++i) {
    separate();
    fused();
  }
  std::vector<double> slow, quick, ratio;
  for (int i = 0; i < repeats; ++i) {
    slow.push_back(milliseconds(separate));
    quick.push_back(milliseconds(fused));
    ratio.push_back(quick.back() / slow.back());
  }
  std::printf("%-46s %10.3f %10.3f %8.3f\n", title.c_str(), median(slow), median(quick),
              median(ratio));
}

/// y = a + b, as the operation does it.
void add(const Floats& a, const Floats& b, Floats& y) {
  parallel_for(std::ssize(y), 32768, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      y[i] = a[i] + b[i];
    }
  });
}

void norms(std::int64_t rows, std::int64_t width, int repeats) {
  const RowShape shape{rows, width, width};
  const std::string size = std::to_string(rows) + " x " + std::to_string(width);
  const Floats left = random_floats(rows * width), right = left, dy = left, dsum = left;
  const Floats gain = random_floats(width), shift = gain;
  Floats sum(left.size()), y(left.size()), dx(left.size()), dgain(gain.size()), dshift = dgain;
  Floats stats(static_cast<std::size_t>(3 * rows)), rstd(static_cast<std::size_t>(rows));
  Floats scratch(static_cast<std::size_t>(layer_norm_workspace(shape)));
  Floats rms_scratch(static_cast<std::size_t>(rms_norm_workspace(shape)));
  contest(
      "add + layer norm, forward, " + size, repeats,
      [&] {
        add(left, right, sum);
        layer_norm_forward<float>(shape, 1e-5, sum, gain, shift, y, stats);
      },
      [&] { add_layer_norm_forward<float>(shape, 1e-5, left, right, gain, shift, sum, y, stats); });
  contest(
      "add + layer norm, backward, " + size, repeats,
      [&] {
        layer_norm_backward<float>(shape, sum, dy, gain, stats, dx, dgain, dshift, scratch);
        kernels::accumulate<float>(dx, dsum);
      },
      [&] {
        layer_norm_backward<float>(shape, sum, dy, gain, stats, dx, dgain, dshift, scratch, dsum);
      });
  contest(
      "add + RMS norm, forward, " + size, repeats,
      [&] {
        add(left, right, sum);
        rms_norm_forward<float>(shape, 1e-6, false, sum, gain, y, rstd);
      },
      [&] { add_rms_norm_forward<float>(shape, 1e-6, false, left, right, gain, sum, y, rstd); });
  contest(
      "add + RMS norm, backward, " + size, repeats,
      [&] {
        rms_norm_backward<float>(shape, false, sum, dy, gain, rstd, dx, dgain, rms_scratch);
        kernels::accumulate<float>(dx, dsum);
      },
      [&] {
        rms_norm_backward<float>(shape, false, sum, dy, gain, rstd, dx, dgain, rms_scratch, dsum);
      });
}

/// Makes what it is attached to be computed piece by piece.
struct Watcher : LayerObserver {
  void on_enter(Layer&, const Tensor&) override {}
  void on_result(Layer&, const Tensor&, const Tensor&, const Measures&) override {}
  void on_leave(Layer&) noexcept override {}
  void on_destroy(Layer&) noexcept override {}
};

void steps(const char* title, const Decoder::Options& options, std::int64_t batch, int repeats) {
  Decoder model(options);
  model.initialize(1);
  AdamW optimizer(model.parameters(), {.lr = 1e-3, .weight_decay = 0.01});
  Random random(1, "tokens");
  const auto tokens = [&] {
    Tensor t = Tensor::empty({batch, options.context}, Dtype::I64);
    for (std::int64_t& id : t.mutable_data<std::int64_t>()) id = random.below(options.vocab);
    return t;
  };
  const Tensor ids = tokens(), targets = tokens();
  const Run step = [&] {
    Tape tape;
    optimizer.step(tape.backward(model.loss(ids, targets)));
  };
  Watcher watcher;
  std::vector<Layer*> norms;
  model.visit([&](Module& m) {
    if (dynamic_cast<LayerNorm*>(&m) != nullptr || dynamic_cast<RmsNorm*>(&m) != nullptr) {
      norms.push_back(dynamic_cast<Layer*>(&m));
    }
  });
  contest(
      title, repeats,
      [&] {
        for (Layer* norm : norms) norm->attach(watcher);
        step();
        for (Layer* norm : norms) norm->detach(watcher);
      },
      step);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"What fused passes save."};
  int threads = 1, repeats = 41;
  app.add_option("--threads", threads, "")->check(CLI::Range(1, MaxThreads))->capture_default_str();
  app.add_option("--repeats", repeats, "of each form")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  set_num_threads(threads);
  std::printf("%-46s %10s %10s %8s\n", "", "separate", "fused ms", "ratio");
  for (const auto& [rows, width] : {std::pair<std::int64_t, std::int64_t>{2048, 128},
                                    {2048, 384},
                                    {1024, 512},
                                    {16384, 1024}}) {
    norms(rows, width, repeats);
  }
  Decoder::Options c =
      Decoder::gpt2({.vocab = 65, .context = 128, .dim = 128, .layers = 4, .heads = 4});
  steps("step of (c): GPT, 4 x 128, 16 x 128 tokens", c, 16, repeats);
  Decoder::Options d =
      Decoder::gpt2({.vocab = 65, .context = 256, .dim = 384, .layers = 6, .heads = 6});
  steps("step of (d): GPT, 6 x 384, 8 x 256 tokens", d, 8, std::max(3, repeats / 4));
  Decoder::Options e =
      Decoder::llama({.vocab = 6400, .context = 256, .dim = 512, .layers = 8, .heads = 8});
  e.kv_heads = 2;
  e.hidden = 1408;
  e.tied = true;
  steps("step of (e): Llama, 8 x 512, 4 x 256 tokens", e, 4, std::max(3, repeats / 4));
  return 0;
}
