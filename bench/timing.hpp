#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

namespace steady::bench {

/// Wall time of one call.
inline double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The middle one; the upper of the two middle ones of an even number. Not of nothing.
inline double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

}  // namespace steady::bench
