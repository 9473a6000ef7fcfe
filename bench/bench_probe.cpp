// What does a probe cost?
//
//   build/bin/bench_probe [--steps 500] [--every 25] [--threads 2] [--batch 64] [--norm batch]
//
// Two copies of the CNN of mnist_cnn train in turn in one process, one of them watched at the
// default sampling into a run log. A pair is `every` steps of each, so that each pair holds one
// sampled step; the last line is the median of the ratios of neighbouring pairs (1.03: three
// percent).
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <steadygrad/steadygrad.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/timing.hpp"

namespace {

using namespace steady;
using namespace steady::bench;

struct Net : Layer {
  struct Options {
    NormSpec norm;
  };
  explicit Net(Options options) : o(std::move(options)) {}
  Options o;
  Conv2d& conv1 = add<Conv2d>("conv1", {.in = 1, .out = 32, .padding = 1, .bias = false});
  Layer& norm1 = add_norm("norm1", o.norm, 32);
  Conv2d& conv2 = add<Conv2d>("conv2", {.in = 32, .out = 64, .padding = 1, .bias = false});
  Layer& norm2 = add_norm("norm2", o.norm, 64);
  Conv2d& conv3 = add<Conv2d>("conv3", {.in = 64, .out = 64, .padding = 1, .bias = false});
  Layer& norm3 = add_norm("norm3", o.norm, 64);
  Linear& head = add<Linear>("head", {.in = std::int64_t{7} * 7 * 64, .out = 10});

  Tensor forward(const Tensor& x) override {
    Tensor h = max_pool2d(relu(norm1(conv1(x))), 2);
    h = max_pool2d(relu(norm2(conv2(h))), 2);
    return head(flatten(relu(norm3(conv3(h))), 1));
  }
};

struct Trainer {
  explicit Trainer(const NormSpec& norm) : net({norm}) { net.initialize(1); }
  void step(const Dataset& data) {
    Tape tape;
    const Tensor loss = cross_entropy(net(data.x), data.y);
    optimizer.step(tape.backward(loss));
  }
  Net net;
  Sgd optimizer{net.parameters(), {.lr = 0.01, .momentum = 0.9}};
};

/// Milliseconds of `steps` steps.
double timed(Trainer& trainer, const Dataset& data, int steps) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) trainer.step(data);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

std::string_view text(int argc, char** argv, std::string_view name, std::string_view fallback) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] == name) return argv[i + 1];
  }
  return fallback;
}

int number(int argc, char** argv, std::string_view name, int fallback) {
  const std::string_view given = text(argc, argv, name, "");
  int value = 0;
  const bool read =
      std::from_chars(given.data(), given.data() + given.size(), value).ec == std::errc{};
  return read && value > 0 ? value : fallback;
}

}  // namespace

int main(int argc, char** argv) {
  const int every = number(argc, argv, "--every", 25);
  const int pairs = std::max(1, number(argc, argv, "--steps", 500) / every);
  const std::int64_t batch = number(argc, argv, "--batch", 64);
  set_num_threads(number(argc, argv, "--threads", num_threads()));
  const NormSpec norm = NormSpec::parse(text(argc, argv, "--norm", "batch"));
  const Dataset data = make_glyphs({.train = batch, .test = 1}).train;
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / "steadygrad_bench_probe.h5";

  Trainer plain(norm);
  Trainer watched(norm);
  RunLog log(file, {{"norm", to_string(norm)}});
  Probe probe(watched.net, {.every = every}, log_probe(log));
  std::vector<double> plain_ms;
  std::vector<double> watched_ms;
  std::vector<double> ratios;
  for (int i = -1; i < pairs; ++i) {  // one pair to warm up
    const double without = timed(plain, data, every);
    const double with = timed(watched, data, every);
    if (i < 0) continue;
    plain_ms.push_back(without / every);
    watched_ms.push_back(with / every);
    ratios.push_back(with / without);
  }
  probe.finish();
  log.close();
  std::printf("%s, batch %ld, %d threads, every %d steps, %d pairs\n", to_string(norm).c_str(),
              static_cast<long>(batch), num_threads(), every, pairs);
  std::printf("without a probe   %8.3f ms / step (median)\n", median(plain_ms));
  std::printf("with a probe      %8.3f ms / step (median)\n", median(watched_ms));
  std::printf("log               %8.1f kB\n",
              static_cast<double>(std::filesystem::file_size(file)) / 1e3);
  std::printf("with / without    %8.4f (median of the pairs)\n", median(ratios));
  std::filesystem::remove(file);
  return 0;
}
