// What the norms cannot be faster than, on one thread: nanoseconds per 16 float32 elements.
//
//   build/bin/bench_limits [--rounds 21] [--target AVX2]
//
// In turn, in one process, for every shape: a copy (x to out) and a triad (x and dy to out) with
// plain stores, and loops that do a part of a norm, see limits.hpp: for rows of features LayerNorm
// forward's loads and stores alone and these with its arithmetic; the same of its backward, and the
// arithmetic alone; softmax forward's exponentials of a row in the first cache, and the loads and
// stores of its passes; for images, as GroupNorm, and wide rows, a few at a time, a read followed
// by the copy or triad over what was read, the second time written past the caches and the next
// fetched. "best" and "median" are over the rounds; "ratio" is the median over the rounds of the
// loop's time over that of the copy (forward) or triad (backward) in the same round.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <steadygrad/core/kernels/simd_target.hpp>
#include <steadygrad/core/parallel.hpp>

#include "bench/contest.hpp"
#include "bench/floors.hpp"
#include "bench/limits.hpp"
#include "bench/norm_arrays.hpp"
#include "bench/simd_cap.hpp"

namespace {

using namespace steady::bench;

struct Shape {
  std::string name;
  std::int64_t rows, width;
  bool images;  // a row is a sample
};

const std::vector<Shape> Shapes{
    {"1024x128", 1024, 128, false},   {"2048x384", 2048, 384, false},
    {"4096x768", 4096, 768, false},   {"8192x1024", 8192, 1024, false},
    {"2048x4096", 2048, 4096, false}, {"1024x7168", 1024, 7168, false},
    {"64x16x32x32", 64, 16384, true}, {"128x32x28x28", 128, 25088, true},
    {"64x64x32x32", 64, 65536, true}, {"32x128x16x16", 32, 32768, true}};

struct Limit {
  std::string name;
  const char* floor;
  std::function<float(const LimitArrays&)> run;
};

const std::vector<Limit> OfRows{
    {"LayerNorm forward: loads and stores", "copy", limit_layer_norm_forward_memory},
    {"LayerNorm forward: with arithmetic", "copy", limit_layer_norm_forward},
    {"LayerNorm backward: loads and stores", "triad", limit_layer_norm_memory},
    {"LayerNorm backward: with arithmetic", "triad", limit_layer_norm},
    {"LayerNorm backward: arithmetic alone", "triad", limit_layer_norm_arithmetic},
    {"softmax forward: exp alone", "copy", limit_exponentials},
    {"softmax forward: loads and stores", "copy", limit_softmax_memory}};

/// The two passes over so many rows at a time.
std::vector<Limit> two_passes(std::int64_t forward_rows, std::int64_t backward_rows) {
  std::vector<Limit> limits;
  for (const bool large : {false, true}) {
    const auto add = [&](const char* name, const char* floor, std::int64_t together, auto run) {
      limits.push_back(
          {fmt::format("{}{}", name, large ? ", large" : ""), floor, [=](LimitArrays a) {
             a.rows /= together;
             a.width *= together;
             return run(a, large);
           }});
    };
    add("read, then copy", "copy", forward_rows, limit_read_copy);
    add("read, then triad", "triad", backward_rows, limit_read_triad);
  }
  return limits;
}

std::vector<Limit> limits_of(const Shape& s) {
  if (s.images) {
    std::vector<Limit> limits = two_passes(1, 1);
    limits.push_back({"forward: with arithmetic", "copy", limit_norm_forward});
    limits.push_back({"backward: with arithmetic", "triad", limit_norm_backward});
    return limits;
  }
  std::vector<Limit> limits = OfRows;
  if (s.width > 1024) std::ranges::copy(two_passes(8, 4), std::back_inserter(limits));
  return limits;
}

void measure(const Shape& s, int rounds) {
  Arrays arrays(s.rows, s.width, 1, 1);
  const LimitArrays a{s.rows,
                      s.width,
                      arrays.x.data(),
                      arrays.dy.data(),
                      arrays.gamma.data(),
                      arrays.dx.data(),
                      arrays.dgamma.data(),
                      arrays.dbeta.data()};
  const std::int64_t n = s.rows * s.width;
  volatile float sink = 0;
  std::vector<Contender> all{{"copy", [=] { floor_copy(a.x, a.out, n, false); }},
                             {"triad", [=] { floor_triad(a.x, a.dy, a.out, n, false); }}};
  const std::vector<Limit> limits = limits_of(s);
  for (const Limit& limit : limits) all.push_back({limit.name, [&] { sink = limit.run(a); }});
  const Contest contest(all, rounds);
  const auto line = [&](const std::string& name, const char* floor) {
    const double scale = 16e9 / static_cast<double>(n);
    fmt::print("{:<14}{:<40}{:>8.2f}{:>8.2f}{:>8.2f}\n", s.name, name, contest.best(name) * scale,
               contest.seconds(name) * scale, contest.ratio(name, floor));
  };
  line("copy", "copy");
  line("triad", "triad");
  for (const Limit& limit : limits) line(limit.name, limit.floor);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"What the norms cannot be faster than"};
  std::string target;
  int rounds = 21;
  app.add_option("--rounds", rounds, "at least 7 for a figure to keep")->check(CLI::Range(1, 1000));
  app.add_option("--target", target, "SIMD target, e.g. AVX2");
  CLI11_PARSE(app, argc, argv);
  if (!target.empty() && !cap_target(target)) {
    fmt::print(stderr, "bench_limits: no SIMD target {} here\n", target);
    return 2;
  }
  steady::set_num_threads(1);
  fmt::print("SIMD target {}, ns per 16 elements\n", steady::kernels::simd_target());
  fmt::print("{:<14}{:<40}{:>8}{:>8}{:>8}\n", "shape", "", "best", "median", "ratio");
  for (const Shape& s : Shapes) measure(s, rounds);
}
