// What does averaging gradients over MPI cost, and how much of it hides behind backward?
//
//   mpirun -n 2 build/bin/bench_distributed --config b --steps 30      steps of each kind, in turn
//   mpirun -n 2 build/bin/bench_distributed --config messages          the sum of n floats
//   build/bin/bench_distributed --config model --step-ms 156 --parameters 272474 --norms 21
//                               --channels 688                         predicted steps on P ranks
//
// Every rank takes steps on a whole batch of its own, one thread each. Kinds: alone (no averaging),
// after (backward, then averaging), overlapped (averaging begins while backward runs), and the last
// with every BatchNorm synchronized. A step is over when the slowest rank is; the numbers are
// medians of steps taken in turn. How to read it: overlapped minus alone is what training together
// costs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <steadygrad/steadygrad.hpp>
#include <string>
#include <vector>

#include "bench/timing.hpp"
#include "bench/trainer.hpp"

namespace {

using namespace steady;
using namespace steady::bench;
using distributed::world;

std::unique_ptr<Trainer> make_trainer(char config) {
  Random random(1 + static_cast<std::uint64_t>(world().rank()), "bench_distributed");
  if (config == 'b') {
    static std::vector<float> images(std::size_t{64} * 32 * 32 * 3);
    static std::vector<std::int64_t> labels(64);
    for (float& v : images) v = static_cast<float>(random.normal());
    for (std::int64_t& v : labels) v = random.below(10);
    return make_resnet({.size = 32, .channels = 3, .images = images, .labels = labels});
  }
  const DecoderSizes sizes{.llama = true,
                           .layers = 8,
                           .dim = 512,
                           .heads = 8,
                           .kv_heads = 2,
                           .hidden = 1408,
                           .context = 256,
                           .vocabulary = 6400,
                           .batch = 4};
  std::vector<std::int64_t> ids(static_cast<std::size_t>(sizes.batch * sizes.context));
  std::vector<std::int64_t> targets(ids.size());
  for (std::int64_t& id : ids) id = random.below(sizes.vocabulary);
  for (std::int64_t& id : targets) id = random.below(sizes.vocabulary);
  return make_decoder(sizes, {.ids = ids, .targets = targets});
}

/// Seconds of the slowest rank.
double slowest(const std::function<void()>& work) {
  world().barrier();
  return std::ranges::max(world().all_gather(seconds_of(work)));
}

/// A kind of step: a model of its own, so that the kinds can be taken in turn.
struct Kind {
  std::string name;
  std::unique_ptr<Trainer> trainer{};
  std::unique_ptr<DataParallel> parallel{};
  std::vector<double> seconds{};
};

Kind make_kind(const char* name, char config, bool average, bool overlap, bool sync) {
  Kind kind{.name = name, .trainer = make_trainer(config)};
  if (sync) (void)convert_to_sync_batch_norm(*kind.trainer->model());
  if (!average) return kind;
  kind.parallel = std::make_unique<DataParallel>(
      *kind.trainer->model(), world(), DataParallelOptions{.overlap = overlap, .check_every = 0});
  kind.trainer->set_backward([parallel = kind.parallel.get()](Tape& tape, const Tensor& loss) {
    return parallel->backward(tape, loss, 1);
  });
  return kind;
}

void time_steps(char config, int steps) {
  std::vector<Kind> kinds;
  kinds.push_back(make_kind("alone", config, false, false, false));
  kinds.push_back(make_kind("after", config, true, false, false));
  kinds.push_back(make_kind("overlapped", config, true, true, false));
  if (config == 'b') kinds.push_back(make_kind("overlapped, sync", config, true, true, true));
  for (int i = -2; i < steps; ++i) {
    for (Kind& kind : kinds) {
      const double seconds = slowest([&] { (void)kind.trainer->step(); });
      if (i >= 0) kind.seconds.push_back(seconds);
    }
  }
  if (world().rank() != 0) return;
  std::int64_t elements = 0;
  for (const Parameter& p : kinds[0].trainer->model()->parameters()) elements += p.value.numel();
  std::printf("(%c), %d ranks, %lld parameters, %d steps\n", config, world().size(),
              static_cast<long long>(elements), steps);
  std::printf("%-18s %10s %10s %12s\n", "averaging", "median ms", "min ms", "over alone");
  for (const Kind& kind : kinds) {
    std::vector<double> over;
    for (std::size_t i = 0; i < kind.seconds.size(); ++i) {
      over.push_back(kind.seconds[i] / kinds[0].seconds[i]);
    }
    std::printf("%-18s %10.2f %10.2f %11.1f%%\n", kind.name.c_str(), 1e3 * median(kind.seconds),
                1e3 * std::ranges::min(kind.seconds), 100 * (median(over) - 1));
  }
}

void time_messages() {
  if (world().rank() == 0) std::printf("%12s %14s\n", "floats", "sum, us");
  for (const std::size_t n : {1U, 256U, 4096U, 65536U, 262144U, 1048576U, 4194304U}) {
    std::vector<float> values(n, 1.0F);
    std::vector<double> sums;
    for (int i = 0; i < 25; ++i) {
      sums.push_back(slowest([&] { world().all_reduce(std::span(values)); }));
    }
    if (world().rank() == 0) std::printf("%12zu %14.1f\n", n, 1e6 * median(sums));
  }
}

/// A network by the two numbers of the alpha-beta model.
struct Network {
  const char* name;
  double alpha;  // seconds of a message
  double beta;   // seconds of a byte
};

struct Configuration {
  double step_ms = 156;
  double parameters = 272474;
  double norms = 0;
  double channels = 0;
  double local_ns = 3;  // of packing, adding and unpacking, per byte of gradients
};

/// Seconds in which P ranks average the gradients: buckets (see AveragerOptions), each an
/// all-to-all and an all-gather, P - 1 messages apiece.
double averaging(const Network& net, const Configuration& c, double ranks) {
  const double bytes = 4 * c.parameters;
  const double buckets = std::ceil(bytes / std::max(1048576.0, 65536 * ranks));
  return 2 * (ranks - 1) * (buckets * net.alpha + bytes / ranks * net.beta) +
         bytes * c.local_ns * 1e-9;
}

/// Seconds of the three gathers of every synchronized norm: log2 P rounds, 24 + 16 bytes per
/// channel.
double synchronizing(const Network& net, const Configuration& c, double ranks) {
  return 3 * c.norms * std::ceil(std::log2(ranks)) * net.alpha +
         (ranks - 1) * 40 * c.channels * net.beta;
}

void print_model(const Configuration& c, const std::vector<Network>& networks) {
  std::printf("%6s", "ranks");
  for (const Network& net : networks) std::printf("   %-28s", net.name);
  std::printf("\n%6s", "");
  for (std::size_t i = 0; i < networks.size(); ++i) {
    std::printf("   %8s %8s %10s", "comm ms", "step ms", "efficiency");
  }
  std::printf("\n");
  for (double ranks = 1; ranks <= 256; ranks *= 2) {
    std::printf("%6.0f", ranks);
    for (const Network& net : networks) {
      const double together = ranks == 1 ? 0 : averaging(net, c, ranks);
      const double norms = ranks == 1 ? 0 : synchronizing(net, c, ranks);
      // Averaging hides behind backward, two thirds of the step; what norms wait for does not.
      const double hidden = std::min(together, c.step_ms / 1e3 * 2 / 3);
      const double best = c.step_ms / 1e3 + norms + together - hidden;
      const double worst = c.step_ms / 1e3 + norms + together;
      std::printf("   %8.2f %8.1f %4.0f-%3.0f %%", 1e3 * (together + norms), 1e3 * worst,
                  100 * c.step_ms / 1e3 / worst, 100 * c.step_ms / 1e3 / best);
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string config = "b";
  int steps = 30;
  Configuration c;
  double alpha_us = 0, gigabytes = 0;
  CLI::App app{"Times the averaging of gradients over MPI."};
  app.add_option("--config", config, "b, e, messages or model")->capture_default_str();
  app.add_option("--steps", steps, "steps of each kind")->capture_default_str();
  app.add_option("--step-ms", c.step_ms, "model: a step of one rank")->capture_default_str();
  app.add_option("--parameters", c.parameters, "model: learned elements")->capture_default_str();
  app.add_option("--norms", c.norms, "model: synchronized norms")->capture_default_str();
  app.add_option("--channels", c.channels, "model: channels of all of them")->capture_default_str();
  app.add_option("--local-ns", c.local_ns, "model: copies and sums, ns per byte of gradients")
      ->capture_default_str();
  app.add_option("--alpha-us", alpha_us, "model: of a third network, microseconds per message");
  app.add_option("--gigabytes", gigabytes, "model: of a third network, GB per second");
  CLI11_PARSE(app, argc, argv);
  set_num_threads(1);
  if (config == "model") {
    std::vector<Network> networks{{"10 Gb/s Ethernet", 30e-6, 1 / 1.1e9},
                                  {"100 Gb/s InfiniBand", 1.5e-6, 1 / 11e9}};
    if (alpha_us > 0) networks.push_back({"as given", alpha_us * 1e-6, 1 / (gigabytes * 1e9)});
    print_model(c, networks);
  } else if (config == "messages") {
    time_messages();
  } else {
    time_steps(config[0], steps);
  }
  return 0;
}
