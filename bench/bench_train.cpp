// How long does a training step take, what memory does it use, and does it touch new memory?
//
//   build/bin/bench_train [--config a] [--steps 30] [--threads 2] [--json FILE]
//
// Configurations: a, a three-layer CNN with BatchNorm on 28x28 images, and b, ResNet-20 on 32x32
// images, both with SGD; c and d, GPT decoders
// of 4 layers of 128 and 6 layers of 384 features; e, a Llama-style decoder of 8 layers of 512, all
// three with AdamW. Built with -DSTEADY_BENCH_PEERS=ON, the same model in libtorch takes a step in
// turn with ours, in the same process, and the last column is the median of the ratios of
// neighbouring steps (below 1: we are faster). Minor faults per step count pages mapped in: 0 in
// steady state. Memory is what one side alone adds to the process before the other begins.
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
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

/// Bytes of the process in memory.
std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0;
  statm >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

struct Timing {
  std::vector<double> ms;
  std::int64_t faults = 0;
  std::int64_t bytes = 0;  // that its first steps added to the process
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

/// Both sides of a configuration; no peer without libtorch.
struct Contest {
  std::string title;
  const char* unit;
  std::int64_t items;  // per step
  std::function<std::unique_ptr<Trainer>()> ours;
  std::function<std::unique_ptr<Trainer>()> peer;
};

#ifdef STEADY_BENCH_PEERS
constexpr bool WithPeers = true;
#else
constexpr bool WithPeers = false;
#endif

Contest cnn_contest(int threads) {
  const Dataset data = make_glyphs({.train = 64, .test = 1}).train;
  const auto batch = [data] {
    return ImageBatch{.images = data.x.data<float>(), .labels = data.y.data<std::int64_t>()};
  };
  Contest c{"(a) CNN 28x28, batch 64", "images/s", 64, [=] { return make_cnn(batch()); }, {}};
  if constexpr (WithPeers) c.peer = [=] { return make_torch_cnn(batch(), threads); };
  return c;
}

Contest resnet_contest(int threads) {
  Random random(1, "bench_train images");
  const Tensor x = Tensor::empty({64, 32, 32, 3}, Dtype::F32);
  const Tensor y = Tensor::empty({64}, Dtype::I64);
  for (float& v : Tensor(x).mutable_data<float>()) v = static_cast<float>(random.normal());
  for (std::int64_t& v : Tensor(y).mutable_data<std::int64_t>()) v = random.below(10);
  const auto batch = [=] {
    return ImageBatch{
        .size = 32, .channels = 3, .images = x.data<float>(), .labels = y.data<std::int64_t>()};
  };
  Contest c{"(b) ResNet-20, batch 64", "images/s", 64, [=] { return make_resnet(batch()); }, {}};
  if constexpr (WithPeers) c.peer = [=] { return make_torch_resnet(batch(), threads); };
  return c;
}

Contest decoder_contest(std::string title, const DecoderSizes& s, int threads) {
  Random random(1, "bench_train");
  const auto draw = [&] {
    Tensor t = Tensor::empty({s.batch, s.context}, Dtype::I64);
    for (std::int64_t& id : t.mutable_data<std::int64_t>("draw")) id = random.below(s.vocabulary);
    return t;
  };
  const Tensor ids = draw();
  const Tensor targets = draw();
  const auto batch = [=] {
    return TokenBatch{ids.data<std::int64_t>(), targets.data<std::int64_t>()};
  };
  Contest c{std::move(title),
            "tokens/s",
            s.batch * s.context,
            [=] { return make_decoder(s, batch()); },
            {}};
  if constexpr (WithPeers) c.peer = [=] { return make_torch_decoder(s, batch(), threads); };
  return c;
}

std::unique_ptr<Trainer> warmed_up(const std::function<std::unique_ptr<Trainer>()>& make,
                                   Timing& timing) {
  const std::int64_t before = resident_bytes();
  std::unique_ptr<Trainer> trainer = make();
  for (int i = 0; i < 3; ++i) (void)trainer->step();
  timing.bytes = resident_bytes() - before;
  return trainer;
}

nlohmann::json print(const char* who, const Timing& t, const Contest& contest, double ratio) {
  const double ms = median(t.ms);
  const double faults = static_cast<double>(t.faults) / static_cast<double>(t.ms.size());
  const double rate = 1000.0 * static_cast<double>(contest.items) / ms;
  std::printf("%-10s %10.2f %10.2f %10.0f %14.1f %10.0f %12.3f\n", who, ms,
              *std::ranges::min_element(t.ms), rate, faults, static_cast<double>(t.bytes) / 1e6,
              ratio);
  return {{"median_ms", ms},
          {"items_per_second", rate},
          {"faults_per_step", faults},
          {"megabytes", static_cast<double>(t.bytes) / 1e6},
          {"ours_to_peer", ratio}};
}

nlohmann::json hold(const Contest& contest, int threads, int steps) {
  Timing our_time;
  Timing peer_time;
  const std::unique_ptr<Trainer> ours = warmed_up(contest.ours, our_time);
  std::unique_ptr<Trainer> peer;
  if (contest.peer) peer = warmed_up(contest.peer, peer_time);
  for (int i = 0; i < steps; ++i) {
    timed_step(*ours, our_time);
    if (peer) timed_step(*peer, peer_time);
  }
  std::vector<double> ratios;
  for (std::size_t i = 0; i < peer_time.ms.size(); ++i) {
    ratios.push_back(our_time.ms[i] / peer_time.ms[i]);
  }
  std::printf("%s, %d threads, %d steps\n", contest.title.c_str(), threads, steps);
  std::printf("%-10s %10s %10s %10s %14s %10s %12s\n", "", "median ms", "min ms", contest.unit,
              "faults / step", "MB", "ours / peer");
  nlohmann::json result{{"config", contest.title}, {"threads", threads}, {"steps", steps}};
  result["ours"] = print("steadygrad", our_time, contest, peer ? median(ratios) : 1.0);
  if (peer) result["libtorch"] = print("libtorch", peer_time, contest, 1.0);
  std::fflush(stdout);
  return result;
}

Contest contest_of(char config, int threads) {
  if (config == 'a') return cnn_contest(threads);
  if (config == 'b') return resnet_contest(threads);
  if (config == 'c') {
    return decoder_contest("(c) GPT, 4 layers of 128, 16 x 128 tokens", {}, threads);
  }
  DecoderSizes s;
  if (config == 'd') {
    s.layers = 6;
    s.dim = 384;
    s.heads = s.kv_heads = 6;
    s.hidden = 1536;
    s.context = 256;
    s.batch = 8;
    return decoder_contest("(d) GPT, 6 layers of 384, 8 x 256 tokens", s, threads);
  }
  s.llama = true;
  s.layers = 8;
  s.dim = 512;
  s.heads = 8;
  s.kv_heads = 2;
  s.hidden = 1408;
  s.context = 256;
  s.vocabulary = 6400;
  s.batch = 4;
  return decoder_contest("(e) Llama style, 8 layers of 512, 4 x 256 tokens, vocabulary 6400", s,
                         threads);
}

}  // namespace

int main(int argc, char** argv) {
  std::string config = "a";
  std::string json;
  int steps = 30;
  int threads = num_threads();
  CLI::App app{"Times training steps, beside libtorch where it was built in."};
  app.add_option("--config", config, "a, b, c, d, e or all")
      ->check(CLI::IsMember({"a", "b", "c", "d", "e", "all"}))
      ->capture_default_str();
  app.add_option("--steps", steps, "timed steps of each side")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--threads", threads, "")->check(CLI::Range(1, MaxThreads))->capture_default_str();
  app.add_option("--json", json, "file for the numbers");
  CLI11_PARSE(app, argc, argv);
  set_num_threads(threads);
  nlohmann::json results = nlohmann::json::array();
  for (const char c : std::string_view("abcde")) {
    if (config != "all" && config[0] != c) continue;
    results.push_back(hold(contest_of(c, threads), threads, steps));
  }
  if (!json.empty()) std::ofstream(json) << results.dump(1) << '\n';
  return 0;
}
