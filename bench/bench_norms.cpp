// Norms and softmax against the bytes they must move, libtorch and oneDNN.
//
//   build/bin/bench_norms [--filter REGEX] [--threads 1,2] [--rounds 9] [--target AVX2]
//                         [--json FILE]
//
// In turn, in one process: ours, a copy (forward: x to y) or triad (backward: x and dy to dx) with
// plain stores and with stores that go past the caches, libtorch and oneDNN. "ours ms" is the
// median time; every ratio is the median over the rounds of our time over the other's in the same
// round. /floor and /NT: the copy or triad with plain and with streaming stores. /twice: BatchNorm,
// which must have seen all of its input before it writes, against a read and then a copy or triad
// with the better of the two kinds of stores. /dnn: the best layout of oneDNN. /torch: contiguous,
// as libtorch has images by default; /t.last: its channels_last. libtorch's columns are there when
// built with -DSTEADY_BENCH_PEERS=ON. With flags of Google Benchmark
// (--benchmark_filter=layer/forward) our kernels alone run under it.
#include <benchmark/benchmark.h>
#include <fmt/core.h>
#include <omp.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <steadygrad/core/kernels/simd_target.hpp>
#include <steadygrad/core/kernels/softmax.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/layers/norm/batch_norm_kernel.hpp>
#include <steadygrad/layers/norm/group_norm_kernel.hpp>
#include <steadygrad/layers/norm/layer_norm_kernel.hpp>
#include <steadygrad/layers/norm/rms_norm_kernel.hpp>
#include <string>
#include <vector>

#include "bench/contest.hpp"
#include "bench/floors.hpp"
#include "bench/norm_arrays.hpp"
#include "bench/norm_peers.hpp"
#include "bench/simd_cap.hpp"
#include "bench/torch_norms.hpp"

namespace {

using namespace steady::bench;
using steady::ColumnShape;
using steady::GroupShape;
using steady::RowShape;
using Contenders = std::vector<Contender>;

#ifdef STEADY_BENCH_PEERS
constexpr bool Peers = true;
#else
constexpr bool Peers = false;
#endif

/// One row of the table; `contenders` makes the arrays and what runs over them, ours first.
struct Case {
  std::string norm, shape;
  bool backward;
  int threads;
  std::int64_t elements;
  std::function<Contenders()> contenders;

  [[nodiscard]] std::string name() const {
    return fmt::format("{}/{}/{}/threads:{}", norm, backward ? "backward" : "forward", shape,
                       threads);
  }
};

/// Images of size x size pixels; size 0: plain features.
struct Images {
  std::int64_t count, channels, size;

  [[nodiscard]] std::int64_t positions() const { return size == 0 ? 1 : size * size; }
};

void set_threads(int n) {
  steady::set_num_threads(n);
  omp_set_num_threads(n);
#ifdef STEADY_BENCH_PEERS
  torch_threads(n);
#endif
}

/// The floors over the same arrays; with two_passes also that of a norm that reads twice.
void add_floors(Contenders& to, const std::shared_ptr<Arrays>& a, std::int64_t n, bool backward,
                bool two_passes = false) {
  for (const bool stream : {false, true}) {
    const std::string end = stream ? "_nt" : "";
    to.push_back({"floor" + end, [=] {
                    if (backward) {
                      floor_triad(a->x.data(), a->dy.data(), a->dx.data(), n, stream);
                    } else {
                      floor_copy(a->x.data(), a->y.data(), n, stream);
                    }
                  }});
    if (!two_passes) continue;
    to.push_back({"twice" + end, [=] {
                    if (backward) {
                      floor_two_passes(a->x.data(), a->dy.data(), a->dx.data(), n, stream);
                    } else {
                      floor_two_passes(a->x.data(), nullptr, a->y.data(), n, stream);
                    }
                  }});
  }
}

#ifdef STEADY_BENCH_PEERS
RowInput row_input(Arrays& a, std::int64_t rows, std::int64_t width) {
  return {a.x.data(), a.dy.data(), a.gamma.data(), a.beta.data(), rows, width};
}

void add_torch_images(Contenders& to, Arrays& a, const Images& i, std::int64_t groups,
                      bool backward) {
  for (const bool last : {false, true}) {
    if (last && i.size == 0) continue;
    const ImageInput in{a.x.data(), a.dy.data(), a.gamma.data(), a.beta.data(),
                        i.count,    i.channels,  i.size,         last};
    to.push_back({last ? "torch_last" : "torch", groups == 0
                                                     ? torch_batch_norm(in, backward)
                                                     : torch_group_norm(in, groups, backward)});
  }
}
#endif

// --- one norm each -------------------------------------------------------------------------------

Contenders layer_norm(std::int64_t rows, std::int64_t width, bool backward) {
  const RowShape s{rows, width, width};
  const auto a = std::make_shared<Arrays>(rows, width, 3 * rows, steady::layer_norm_workspace(s));
  const auto forward = [=] {
    steady::layer_norm_forward<float>(s, 1e-5, a->x, a->gamma, a->beta, a->y, a->stats);
  };
  forward();
  const auto back = [=] {
    steady::layer_norm_backward<float>(s, a->x, a->dy, a->gamma, a->stats, a->dx, a->dgamma,
                                       a->dbeta, a->workspace);
  };
  Contenders all{{"ours", backward ? std::function<void()>(back) : forward}};
  add_floors(all, a, s.elements(), backward);
#ifdef STEADY_BENCH_PEERS
  all.push_back({"torch", torch_layer_norm(row_input(*a, rows, width), backward)});
#endif
  all.push_back({"onednn", onednn_layer_norm(*a, rows, width, backward)});
  return all;
}

Contenders rms_norm(std::int64_t rows, std::int64_t width, bool backward) {
  const RowShape s{rows, width, width};
  const auto a = std::make_shared<Arrays>(rows, width, rows, steady::rms_norm_workspace(s));
  const auto forward = [=] {
    steady::rms_norm_forward<float>(s, 1e-6, false, a->x, a->gamma, a->y, a->stats);
  };
  forward();
  const auto back = [=] {
    steady::rms_norm_backward<float>(s, false, a->x, a->dy, a->gamma, a->stats, a->dx, a->dgamma,
                                     a->workspace);
  };
  Contenders all{{"ours", backward ? std::function<void()>(back) : forward}};
  add_floors(all, a, s.elements(), backward);
#ifdef STEADY_BENCH_PEERS
  all.push_back({"torch", torch_rms_norm(row_input(*a, rows, width), backward)});
#endif
  return all;
}

Contenders softmax(std::int64_t rows, std::int64_t width, bool backward) {
  const auto a = std::make_shared<Arrays>(rows, width, 1, 1);
  const auto forward = [=] { steady::kernels::softmax<float>(a->x, rows, width, a->y); };
  forward();
  const auto back = [=] {
    steady::kernels::softmax_backward<float>(a->dy, a->y, rows, width, a->dx);
  };
  Contenders all{{"ours", backward ? std::function<void()>(back) : forward}};
  add_floors(all, a, rows * width, backward);
#ifdef STEADY_BENCH_PEERS
  all.push_back({"torch", torch_softmax(row_input(*a, rows, width), backward)});
#endif
  all.push_back({"onednn", onednn_softmax(*a, rows, width, backward)});
  return all;
}

Contenders batch_norm(Images i, bool backward) {
  using Tag = dnnl::memory::format_tag;
  const ColumnShape s{i.count * i.positions(), i.channels};
  const auto a = std::make_shared<Arrays>(s.rows, s.channels, 3 * s.channels, 1);
  const auto room = std::make_shared<Buffer<double>>(steady::column_workspace(s));
  const auto moments =
      std::make_shared<std::vector<steady::Moments>>(static_cast<std::size_t>(s.channels));
  const auto forward = [=] {
    steady::batch_norm_forward<float>(s, 1e-5, a->x, a->gamma, a->beta, a->y, *moments, a->stats,
                                      *room);
  };
  forward();
  const auto back = [=] {
    steady::batch_norm_backward<float>(s, a->x, std::span<const float>(a->dy), a->gamma, a->stats,
                                       a->dx, a->dgamma, a->dbeta, *room);
  };
  Contenders all{{"ours", backward ? std::function<void()>(back) : forward}};
  add_floors(all, a, s.elements(), backward, true);
#ifdef STEADY_BENCH_PEERS
  add_torch_images(all, *a, i, 0, backward);
#endif
  const auto peer = [&](Tag tag) {
    return onednn_batch_norm(*a, i.count, i.size, i.channels, tag, backward);
  };
  if (i.size == 0) {
    all.push_back({"onednn", peer(Tag::nc)});
  } else {
    all.push_back({"onednn", peer(Tag::nhwc)});
    all.push_back({"onednn_8c", peer(Tag::nChw8c)});
    all.push_back({"onednn_16c", peer(Tag::nChw16c)});
  }
  return all;
}

Contenders group_norm(Images i, bool backward) {
  constexpr std::int64_t Groups = 8;
  const GroupShape s{i.count, i.positions(), i.channels, Groups};
  const auto a =
      std::make_shared<Arrays>(i.count * i.positions(), i.channels, 3 * s.samples * s.groups, 1);
  const auto room = std::make_shared<Buffer<double>>(steady::group_norm_workspace(s));
  const auto forward = [=] {
    steady::group_norm_forward<float>(s, 1e-5, a->x, a->gamma, a->beta, a->y, a->stats);
  };
  forward();
  const auto back = [=] {
    steady::group_norm_backward<float>(s, a->x, a->dy, a->gamma, a->stats, a->dx, a->dgamma,
                                       a->dbeta, *room);
  };
  Contenders all{{"ours", backward ? std::function<void()>(back) : forward}};
  add_floors(all, a, s.elements(), backward);
#ifdef STEADY_BENCH_PEERS
  add_torch_images(all, *a, i, Groups, backward);
#endif
  return all;
}

// --- all of them ---------------------------------------------------------------------------------

struct Rows {
  std::int64_t rows, width;
};
const std::vector<Rows> RowShapes{{1024, 128},  {2048, 384},  {4096, 768}, {8192, 1024},
                                  {2048, 4096}, {16384, 768}, {1024, 7168}};
const std::vector<Images> ImageShapes{
    {64, 16, 32}, {128, 32, 28}, {64, 64, 32}, {32, 128, 16}, {256, 512, 0}};

std::vector<Case> all_cases(const std::vector<int>& threads) {
  std::vector<Case> cases;
  for (const int t : threads) {
    for (const bool backward : {false, true}) {
      const auto rows = [&](const char* norm, auto make) {
        for (const Rows& s : RowShapes) {
          cases.push_back({norm, fmt::format("{}x{}", s.rows, s.width), backward, t,
                           s.rows * s.width, [=] { return make(s.rows, s.width, backward); }});
        }
      };
      const auto images = [&](const char* norm, auto make) {
        for (const Images& i : ImageShapes) {
          const std::string shape =
              i.size == 0 ? fmt::format("{}x{}", i.count, i.channels)
                          : fmt::format("{}x{}x{}x{}", i.count, i.channels, i.size, i.size);
          cases.push_back({norm, shape, backward, t, i.count * i.channels * i.positions(),
                           [=] { return make(i, backward); }});
        }
      };
      rows("layer", layer_norm);
      rows("rms", rms_norm);
      rows("softmax", softmax);
      images("batch", batch_norm);
      images("group", group_norm);
    }
  }
  return cases;
}

/// The largest ratio to any layout of oneDNN, NaN without one.
double best_onednn(const Contest& contest) {
  double worst = std::nan("");
  for (const Contender& c : contest.contenders()) {
    if (c.name.rfind("onednn", 0) == 0) worst = std::fmax(worst, contest.ratio("ours", c.name));
  }
  return worst;
}

std::string cell(double ratio) { return std::isnan(ratio) ? "-" : fmt::format("{:.2f}", ratio); }

void print_head() {
  fmt::print("SIMD target {}\n", steady::kernels::simd_target());
  fmt::print("{:<8}{:<5}{:<14}{:>3}{:>10}{:>8}{:>7}{:>8}{:>7}", "norm", "way", "N x C x H x W", "t",
             "ours ms", "/floor", "/NT", "/twice", "/dnn");
  if (Peers) fmt::print("{:>8}{:>8}", "/torch", "/t.last");
  fmt::print("\n");
}

nlohmann::json race(const Case& c, int rounds) {
  set_threads(c.threads);
  const Contest contest(c.contenders(), rounds);
  const auto ratio = [&](const char* other) { return contest.ratio("ours", other); };
  fmt::print("{:<8}{:<5}{:<14}{:>3}{:>10.4f}{:>8}{:>7}{:>8}{:>7}", c.norm,
             c.backward ? "bwd" : "fwd", c.shape, c.threads, contest.seconds("ours") * 1e3,
             cell(ratio("floor")), cell(ratio("floor_nt")),
             cell(std::fmax(ratio("twice"), ratio("twice_nt"))), cell(best_onednn(contest)));
  if (Peers) fmt::print("{:>8}{:>8}", cell(ratio("torch")), cell(ratio("torch_last")));
  fmt::print("\n");
  std::fflush(stdout);
  nlohmann::json row{{"name", c.name()}, {"elements", c.elements}};
  for (const Contender& one : contest.contenders()) {
    row["ms"][one.name] = contest.seconds(one.name) * 1e3;
    if (one.name != "ours") row["ours_over"][one.name] = ratio(one.name.c_str());
  }
  return row;
}

/// Our kernels alone, under Google Benchmark.
int google_benchmark(int argc, char** argv) {
  for (const Case& c : all_cases({1, 2})) {
    benchmark::RegisterBenchmark(c.name().c_str(),
                                 [c](benchmark::State& state) {
                                   set_threads(c.threads);
                                   const Contenders contenders = c.contenders();
                                   for (auto _ : state) contenders.front().run();
                                   const auto bytes =
                                       static_cast<double>(c.elements) * (c.backward ? 12 : 8);
                                   state.counters["bytes/s"] = benchmark::Counter(
                                       bytes, benchmark::Counter::kIsIterationInvariantRate);
                                 })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]).rfind("--benchmark", 0) == 0) return google_benchmark(argc, argv);
  }
  CLI::App app{"Norms against memory, libtorch and oneDNN"};
  std::string filter, target, json;
  std::vector<int> threads{1, 2};
  int rounds = 9;
  app.add_option("--filter", filter, "a regular expression, e.g. layer/forward/.*threads:1");
  app.add_option("--threads", threads, "numbers of threads")->delimiter(',');
  app.add_option("--rounds", rounds, "at least 7 for a figure to keep")->check(CLI::Range(1, 1000));
  app.add_option("--target", target, "SIMD target of our kernels and of the floors, e.g. AVX2");
  app.add_option("--json", json, "file for all medians");
  CLI11_PARSE(app, argc, argv);
  if (!target.empty() && !cap_target(target)) {
    fmt::print(stderr, "bench_norms: no SIMD target {} here\n", target);
    return 2;
  }
  print_head();
  const std::regex wanted(filter);
  nlohmann::json table = nlohmann::json::array();
  for (const Case& c : all_cases(threads)) {
    if (std::regex_search(c.name(), wanted)) table.push_back(race(c, rounds));
  }
  if (!json.empty()) std::ofstream(json) << table.dump(1) << '\n';
}
