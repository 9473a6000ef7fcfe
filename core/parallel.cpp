#include <steadygrad/core/parallel.hpp>

#include <omp.h>

#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <steadygrad/core/error.hpp>

namespace steady {
namespace {

std::atomic<int>& thread_limit() {
  static std::atomic<int> limit{omp_get_max_threads()};
  return limit;
}

/// Keeps the exception of the lowest chunk.
class FirstFailure {
 public:
  void keep(std::int64_t chunk) {
    const std::lock_guard lock(mutex_);
    if (chunk < chunk_) {
      chunk_ = chunk;
      error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::int64_t chunk_ = std::numeric_limits<std::int64_t>::max();
  std::exception_ptr error_;
};

}  // namespace

int num_threads() { return thread_limit().load(std::memory_order_relaxed); }

void set_num_threads(int n) {
  STEADY_CHECK(Error, n >= 1 && n <= 1024, "set_num_threads: needs 1 to 1024; got {}", n);
  thread_limit().store(n, std::memory_order_relaxed);
}

int worker_index() { return omp_get_thread_num(); }

namespace detail {

void run_chunks(std::int64_t chunks, ChunkBody body) {
  const auto threads =
      static_cast<int>(std::min<std::int64_t>(static_cast<std::int64_t>(num_threads()), chunks));
  if (threads <= 1 || omp_in_parallel() != 0) {
    for (std::int64_t i = 0; i < chunks; ++i) body(i);
    return;
  }
  FirstFailure failure;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t i = 0; i < chunks; ++i) {
    try {
      body(i);
    } catch (...) {
      failure.keep(i);
    }
  }
  failure.rethrow();
}

}  // namespace detail
}  // namespace steady
