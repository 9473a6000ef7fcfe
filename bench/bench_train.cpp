// How long does a training step take, and does it touch new memory?
//
//   build/bin/bench_train [--steps 30] [--threads 2] [--batch 64]
//
// Configuration (a): a three-layer CNN with BatchNorm on 28x28 images, SGD with momentum. Built
// with -DSTEADY_BENCH_PEERS=ON, the same model in libtorch runs in the same process, a step of each
// in turn, and the last column is the median of the ratios of neighbouring steps (below 1: we are
// faster). Minor faults per step count pages mapped in: 0 in steady state.
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <steadygrad/steadygrad.hpp>
#include <string_view>
#include <vector>

#include "bench/peers/peers.hpp"

namespace {

using namespace steady;
using namespace steady::bench;

struct Net : Layer {
  struct Options {};
  explicit Net(Options options) : o(options) {}
  Options o;
  Conv2d& conv1 = add<Conv2d>("conv1", {.in = 1, .out = 32, .padding = 1, .bias = false});
  Layer& norm1 = add_norm("norm1", NormSpec::parse("batch"), 32);
  Conv2d& conv2 = add<Conv2d>("conv2", {.in = 32, .out = 64, .padding = 1, .bias = false});
  Layer& norm2 = add_norm("norm2", NormSpec::parse("batch"), 64);
  Conv2d& conv3 = add<Conv2d>("conv3", {.in = 64, .out = 64, .padding = 1, .bias = false});
  Layer& norm3 = add_norm("norm3", NormSpec::parse("batch"), 64);
  Linear& head = add<Linear>("head", {.in = 64, .out = 10});

  Tensor forward(const Tensor& x) override {
    Tensor h = relu(norm1(conv1(x)));
    h = max_pool2d(relu(norm2(conv2(h))), 2);
    h = relu(norm3(conv3(h)));
    return head(global_avg_pool2d(h));
  }
};

class OurCnn : public Trainer {
 public:
  OurCnn(Tensor x, Tensor y) : x_(std::move(x)), y_(std::move(y)) { net_.initialize(1); }
  double step() override {
    Tape tape;
    const Tensor loss = cross_entropy(net_(x_), y_);
    optimizer_.step(tape.backward(loss));
    return loss.item();
  }

 private:
  Net net_{{}};
  Sgd optimizer_{net_.parameters(), {.lr = 0.01, .momentum = 0.9}};
  Tensor x_;
  Tensor y_;
};

struct Timing {
  std::vector<double> ms;
  std::int64_t faults = 0;
};

std::int64_t minor_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void timed_step(Trainer& trainer, Timing& timing) {
  const std::int64_t faults = minor_faults();
  const auto start = std::chrono::steady_clock::now();
  (void)trainer.step();
  timing.ms.push_back(
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  timing.faults += minor_faults() - faults;
}

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

void print(const char* who, const Timing& t, std::int64_t batch, double ratio) {
  const double ms = median(t.ms);
  std::printf("%-10s %10.2f %10.2f %10.0f %14.1f %12.3f\n", who, ms,
              *std::ranges::min_element(t.ms), 1000.0 * static_cast<double>(batch) / ms,
              static_cast<double>(t.faults) / static_cast<double>(t.ms.size()), ratio);
}

int number(int argc, char** argv, std::string_view name, int fallback) {
  for (int i = 1; i + 1 < argc; ++i) {
    int value = 0;
    const std::string_view text = argv[i + 1];
    if (argv[i] == name &&
        std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc{} &&
        value > 0) {
      return value;
    }
  }
  return fallback;
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = number(argc, argv, "--steps", 30);
  const int threads = number(argc, argv, "--threads", num_threads());
  const std::int64_t batch = number(argc, argv, "--batch", 64);
  set_num_threads(threads);
  const Dataset data = make_glyphs({.train = batch, .test = 1}).train;
  OurCnn ours(data.x, data.y);
  std::unique_ptr<Trainer> torch;
#ifdef STEADY_BENCH_PEERS
  torch = make_torch_cnn(data.x.data<float>(), data.y.data<std::int64_t>(), threads);
#endif
  Timing our_time;
  Timing torch_time;
  std::vector<double> ratios;
  for (int i = -5; i < steps; ++i) {  // five steps to warm up
    if (i == 0) our_time = torch_time = Timing{};
    timed_step(ours, our_time);
    if (torch) timed_step(*torch, torch_time);
  }
  for (std::size_t i = 0; i < torch_time.ms.size(); ++i) {
    ratios.push_back(our_time.ms[i] / torch_time.ms[i]);
  }
  std::printf("(a) CNN 28x28, batch %ld, %d threads, %d steps\n", static_cast<long>(batch), threads,
              steps);
  std::printf("%-10s %10s %10s %10s %14s %12s\n", "", "median ms", "min ms", "images/s",
              "faults / step", "ours / peer");
  print("steadygrad", our_time, batch, 1.0);
  if (torch) print("libtorch", torch_time, batch, median(ratios));
  return 0;
}
