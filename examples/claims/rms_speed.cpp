#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <steadygrad/layers/norm/layer_norm.hpp>
#include <steadygrad/layers/norm/rms_norm.hpp>

#include "examples/claims/experiments.hpp"
#include "examples/claims/measure.hpp"

namespace steady::examples::claims {
namespace {

template <class Work>
double seconds(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// 1 - time(a) / time(b): the best of many turns of each, taken in alternation, so that what else
/// the machine does meets both.
template <class A, class B>
double saving(A&& a, B&& b) {
  constexpr int Turns = 60;
  constexpr int Repeats = 8;
  const auto turn = [](auto& work) {
    return seconds([&] {
      for (int i = 0; i < Repeats; ++i) work();
    });
  };
  double best_a = std::numeric_limits<double>::infinity();
  double best_b = best_a;
  for (int i = 0; i < Turns; ++i) {
    best_a = std::min(best_a, turn(a));
    best_b = std::min(best_b, turn(b));
  }
  return 1 - best_a / best_b;
}

}  // namespace

void rms_speed(Findings& findings, std::uint64_t seed) {
  constexpr std::int64_t Elements = 32'768;  // x and y stay in the cache: memory would level all
  const Band worth = above(0.10);
  for (const std::int64_t d : {64, 512, 4096}) {
    const Tensor x = normal_tensor({Elements / d, d}, seed, "x");
    const Tensor weight = Tensor::ones({d});
    const Tensor bias = Tensor::zeros({d});
    const auto rms = [&] { (void)rms_norm(x, {d}, weight); };
    const auto layer = [&] { (void)layer_norm(x, {d}, weight, bias); };
    findings.check(fmt::format("forward, time saved, width {}", d), std::nullopt,
                   saving(rms, layer), worth);
    findings.control(fmt::format("LayerNorm itself, width {}", d), saving(layer, layer), worth);
  }
}

}  // namespace steady::examples::claims
