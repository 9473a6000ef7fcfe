#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace steady::bench {

/// Wall time of one call.
inline double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Whether a thread of this process other than the first one is on a processor or waits for one.
inline bool others_run() {
  const std::string first = std::to_string(getpid());
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == first) continue;
    std::ifstream file(task.path() / "stat");
    std::string stat;
    std::getline(file, stat);  // number (name) state ...
    const std::size_t end = stat.rfind(')');
    if (end != std::string::npos && stat.compare(end, 3, ") R") == 0) return true;
  }
  return false;
}

/// Waits until no other thread of this process runs: threads of OpenMP, and ours, spin for some
/// milliseconds behind their last loop, on the processors of whoever comes next. Gives up after a
/// second and says so, once: where OMP_WAIT_POLICY=active they never stop. To be called on the
/// first thread.
inline void wait_until_alone() {
  using Clock = std::chrono::steady_clock;
  static bool silent = false;
  if (silent) return;
  const auto end = Clock::now() + std::chrono::seconds(1);
  while (others_run()) {
    if (Clock::now() >= end) {
      std::fputs("threads keep spinning beside what is measured; OMP_WAIT_POLICY?\n", stderr);
      silent = true;
      return;
    }
    std::this_thread::yield();
  }
}

/// The middle one; the upper of the two middle ones of an even number. Not of nothing.
inline double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

}  // namespace steady::bench
