#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "bench/timing.hpp"

namespace steady::bench {

struct Contender {
  std::string name;
  std::function<void()> run;
};

/// Seconds per call of several ways to do one thing, taken in turn, so that a busy machine slows
/// all alike and neighbouring times can be divided by one another.
class Contest {
 public:
  Contest(std::vector<Contender> contenders, int rounds)
      : contenders_(std::move(contenders)), seconds_(contenders_.size()) {
    std::vector<int> calls;
    for (const Contender& c : contenders_) {
      c.run();
      once_.push_back(seconds_of(c.run));
      calls.push_back(static_cast<int>(std::clamp(std::ceil(Sample / once_.back()), 1.0, 1000.0)));
    }
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < contenders_.size(); ++i) {
        const std::size_t k = (i + static_cast<std::size_t>(round)) % contenders_.size();
        seconds_[k].push_back(sample(k, calls[k]));
      }
    }
  }

  /// Median time of a contender; NaN when there is none of that name.
  [[nodiscard]] double seconds(const std::string& name) const {
    const std::size_t k = find(name);
    return k == contenders_.size() ? std::nan("") : median(seconds_[k]);
  }

  /// Shortest time of a contender; NaN when there is none of that name.
  [[nodiscard]] double best(const std::string& name) const {
    const std::size_t k = find(name);
    return k == contenders_.size() ? std::nan("") : *std::ranges::min_element(seconds_[k]);
  }

  /// Median over the rounds of time of `a` over time of `b`; NaN when there is none of that name.
  [[nodiscard]] double ratio(const std::string& a, const std::string& b) const {
    const std::size_t i = find(a), j = find(b);
    if (i == contenders_.size() || j == contenders_.size()) return std::nan("");
    std::vector<double> ratios;
    for (std::size_t r = 0; r < seconds_[i].size(); ++r) {
      ratios.push_back(seconds_[i][r] / seconds_[j][r]);
    }
    return median(ratios);
  }

  [[nodiscard]] const std::vector<Contender>& contenders() const { return contenders_; }

 private:
  static constexpr double Sample = 2e-3;  // what one time is taken over, in seconds
  static constexpr double Slow = 20e-3;   // needs no call ahead of it to fill its caches

  [[nodiscard]] std::size_t find(const std::string& name) const {
    const auto at = std::ranges::find(contenders_, name, &Contender::name);
    return static_cast<std::size_t>(at - contenders_.begin());
  }

  /// Begins when the threads of the last contender rest; as many calls untimed as timed, for the
  /// caches.
  [[nodiscard]] double sample(std::size_t k, int calls) const {
    const auto all = [&] {
      for (int i = 0; i < calls; ++i) contenders_[k].run();
    };
    wait_until_alone();
    if (once_[k] < Slow) all();
    return seconds_of(all) / calls;
  }

  std::vector<Contender> contenders_;
  std::vector<double> once_;
  std::vector<std::vector<double>> seconds_;  // [contender][round]
};

}  // namespace steady::bench
