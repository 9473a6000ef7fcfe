// How long does a training step take, what memory does it use, and does it touch new memory?
//
//   build/bin/bench_train [--config a] [--steps 30] [--threads 2] [--recompute] [--side both]
//                         [--json FILE]
//
// Configurations: a, a three-layer CNN with BatchNorm on 28x28 images, and b, ResNet-20 on 32x32
// images, both with SGD; c and d, GPT decoders of 4 layers of 128 and 6 layers of 384 features; e,
// a Llama-style decoder of 8 layers of 512, all three with AdamW. Built with
// -DSTEADY_BENCH_PEERS=ON, the same model in libtorch takes a step in turn with ours, in the same
// process, each when no thread of the other runs any more, which for both includes waking their
// own, and the last column is the median of the ratios of neighbouring steps (below 1: we are
// faster). GFLOP/s counts three times the multiply-adds of the forward's products and convolutions,
// attention without a mask; of_peak divides by the fastest sgemm found in this process. Minor
// faults per step count pages mapped in: 0 in steady state. kept MB: what our forward leaves alive
// for backward. peak MB: the process's high-water mark, of one side alone with --side.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <steadygrad/core/kernels/gemm.hpp>
#include <steadygrad/steadygrad.hpp>
#include <string>
#include <vector>

#include "bench/timing.hpp"
#include "bench/trainer.hpp"

namespace {

using namespace steady;
using namespace steady::bench;

/// The most bytes that the process ever had in memory.
std::int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{1024} * usage.ru_maxrss;
}

struct Timing {
  std::vector<double> ms;
  std::int64_t faults = 0;
  std::int64_t kept = 0;
};

/// GFLOP/s of the fastest of a few products with the present number of threads.
double sgemm_peak() {
  double best = 0.0;
  for (const std::int64_t n : {256, 512, 1024}) {
    const std::vector<float> a(static_cast<std::size_t>(n * n), 0.5F);
    std::vector<float> c(a.size());
    for (int i = 0; i < 12; ++i) {
      const double seconds =
          seconds_of([&] { kernels::gemm<float>({.m = n, .n = n, .k = n}, 1, a, a, 0, c); });
      best = std::max(best, 2e-9 * static_cast<double>(n * n * n) / seconds);
    }
  }
  return best;
}

std::int64_t minor_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void timed_step(Trainer& trainer, Timing& timing) {
  wait_until_alone();
  const std::int64_t faults = minor_faults();
  timing.ms.push_back(1000.0 * seconds_of([&] { (void)trainer.step(); }));
  timing.faults += minor_faults() - faults;
}

/// Both sides of a configuration; no peer without libtorch.
struct Contest {
  std::string title;
  const char* unit;
  std::int64_t items;  // per step
  double gflop;        // per step
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
  const double pixels = 28.0 * 28.0;
  const double forward = 64 * 2 * 9 * (pixels * (1 * 32 + 32 * 64) + pixels / 4 * 64 * 64);
  Contest c{"(a) CNN 28x28, batch 64",         "images/s", 64, 3e-9 * forward,
            [=] { return make_cnn(batch()); }, {}};
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
  // Multiply-adds of an image: the first convolution, then three stages, halved in size and doubled
  // in channels: 3x3 convolutions of equal work but the first of a stage, and its projection.
  const double equal = 32.0 * 32 * 9 * 16 * 16;
  const double forward =
      64 * 2 * (32.0 * 32 * 9 * 3 * 16 + 16 * equal + 2 * (equal / 2 + equal / 18));
  Contest c{"(b) ResNet-20, batch 64",
            "images/s",
            64,
            3e-9 * forward,
            [=] { return make_resnet(batch()); },
            {}};
  if constexpr (WithPeers) c.peer = [=] { return make_torch_resnet(batch(), threads); };
  return c;
}

double decoder_gflop(const DecoderSizes& s) {
  const auto d = static_cast<double>(s.dim);
  const double kv = d * static_cast<double>(s.kv_heads) / static_cast<double>(s.heads);
  const double mlp = (s.llama ? 3.0 : 2.0) * d * static_cast<double>(s.hidden);
  const double attention = 2.0 * static_cast<double>(s.context) * d;
  const double layer = 2 * d * d + 2 * d * kv + mlp + attention;
  const double token =
      static_cast<double>(s.layers) * layer + d * static_cast<double>(s.vocabulary);
  return 3 * 2e-9 * token * static_cast<double>(s.batch * s.context);
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
            decoder_gflop(s),
            [=] { return make_decoder(s, batch()); },
            {}};
  if constexpr (WithPeers) c.peer = [=] { return make_torch_decoder(s, batch(), threads); };
  return c;
}

std::unique_ptr<Trainer> warmed_up(const std::function<std::unique_ptr<Trainer>()>& make,
                                   Timing& timing) {
  std::unique_ptr<Trainer> trainer = make();
  for (int i = 0; i < 3; ++i) (void)trainer->step();
  timing.kept = trainer->activation_bytes();
  return trainer;
}

nlohmann::json print(const char* who, const Timing& t, const Contest& contest, double peak,
                     double ratio) {
  const double ms = median(t.ms);
  const double faults = static_cast<double>(t.faults) / static_cast<double>(t.ms.size());
  const double rate = 1000.0 * static_cast<double>(contest.items) / ms;
  const double gflops = 1000.0 * contest.gflop / ms;
  const double kept = static_cast<double>(t.kept) / 1e6;
  std::printf("%-10s %9.2f %9.2f %9.0f %9.1f %8.2f %13.1f %8.1f %12.3f\n", who, ms,
              *std::ranges::min_element(t.ms), rate, gflops, gflops / peak, faults, kept, ratio);
  return {{"median_ms", ms},          {"items_per_second", rate},  {"gflops", gflops},
          {"of_peak", gflops / peak}, {"faults_per_step", faults}, {"kept_megabytes", kept},
          {"ours_to_peer", ratio}};
}

enum class Side { Both, Ours, Libtorch };

nlohmann::json hold(const Contest& contest, int threads, int steps, Side side) {
  Timing our_time;
  Timing peer_time;
  std::unique_ptr<Trainer> ours;
  std::unique_ptr<Trainer> peer;
  if (side != Side::Libtorch) ours = warmed_up(contest.ours, our_time);
  if (contest.peer && side != Side::Ours) peer = warmed_up(contest.peer, peer_time);
  for (int i = 0; i < steps; ++i) {
    if (ours) timed_step(*ours, our_time);
    if (peer) timed_step(*peer, peer_time);
  }
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(our_time.ms.size(), peer_time.ms.size()); ++i) {
    ratios.push_back(our_time.ms[i] / peer_time.ms[i]);
  }
  const std::int64_t most = peak_bytes();
  const double peak = sgemm_peak();
  std::printf("%s, %d threads, %d steps, peak %.0f MB, best sgemm %.0f GFLOP/s\n",
              contest.title.c_str(), threads, steps, static_cast<double>(most) / 1e6, peak);
  std::printf("%-10s %9s %9s %9s %9s %8s %13s %8s %12s\n", "", "median ms", "min ms", contest.unit,
              "GFLOP/s", "of_peak", "faults / step", "kept MB", "ours / peer");
  nlohmann::json result{{"config", contest.title},
                        {"threads", threads},
                        {"steps", steps},
                        {"peak_megabytes", static_cast<double>(most) / 1e6},
                        {"sgemm_gflops", peak}};
  const double ratio = ratios.empty() ? 1.0 : median(ratios);
  if (ours) result["ours"] = print("steadygrad", our_time, contest, peak, ratio);
  if (peer) result["libtorch"] = print("libtorch", peer_time, contest, peak, 1.0);
  std::fflush(stdout);
  return result;
}

Contest contest_of(char config, int threads, bool recompute) {
  if (config == 'a') return cnn_contest(threads);
  if (config == 'b') return resnet_contest(threads);
  if (config == 'c') {
    return decoder_contest("(c) GPT, 4 layers of 128, 16 x 128 tokens", {.recompute = recompute},
                           threads);
  }
  DecoderSizes s{.recompute = recompute};
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
  bool recompute = false;
  Side side = Side::Both;
  CLI::App app{"Times training steps, beside libtorch where it was built in."};
  app.add_option("--config", config, "a, b, c, d, e or all")
      ->check(CLI::IsMember({"a", "b", "c", "d", "e", "all"}))
      ->capture_default_str();
  app.add_option("--steps", steps, "timed steps of each side")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--threads", threads, "")->check(CLI::Range(1, MaxThreads))->capture_default_str();
  app.add_flag("--recompute", recompute, "run the decoders' blocks again in backward (ours only)");
  app.add_option("--side", side, "who takes steps")
      ->transform(CLI::CheckedTransformer(std::map<std::string, Side>{
          {"both", Side::Both}, {"ours", Side::Ours}, {"libtorch", Side::Libtorch}}));
  app.add_option("--json", json, "file for the numbers");
  CLI11_PARSE(app, argc, argv);
  if (side == Side::Libtorch && !WithPeers) {
    std::fputs("bench_train: --side libtorch needs a build with -DSTEADY_BENCH_PEERS=ON\n", stderr);
    return 1;
  }
  set_num_threads(threads);
  nlohmann::json results = nlohmann::json::array();
  for (const char c : std::string_view("abcde")) {
    if (config != "all" && config[0] != c) continue;
    results.push_back(hold(contest_of(c, threads, recompute), threads, steps, side));
  }
  if (!json.empty()) std::ofstream(json) << results.dump(1) << '\n';
  return 0;
}
