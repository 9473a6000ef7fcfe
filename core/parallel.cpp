#include <steadygrad/core/parallel.hpp>

#include <omp.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>

#include <steadygrad/core/error.hpp>

// A pool of our own. Chunks are claimed one by one, first from the worker's own range, then from
// the others': a worker that the operating system has taken off its processor, or that never woke
// up, holds nobody back, and the caller alone finishes the job if it must. A barrier among OpenMP
// threads would wait for each of them: on a machine with other load that made training 20 times
// slower.

namespace steady {
namespace {

/// Processes that a launcher of MPI has started on this host, among which they share the
/// processors.
int ranks_here() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    if (const char* text = std::getenv(name)) return std::max(1, std::atoi(text));
  }
  return 1;
}

int threads_at_first() {
  int threads = std::min(omp_get_max_threads(), MaxThreads);
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    threads = std::min(threads, std::max(1, omp_get_num_procs() / ranks_here()));
  }
  return std::max(1, threads);
}

std::atomic<int>& thread_limit() {
  static std::atomic<int> limit{threads_at_first()};
  return limit;
}

thread_local int this_worker = 0;
thread_local bool in_parallel = false;

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

/// The chunks of one parallel_for, cut into one range per participant.
class Job {
 public:
  Job(std::int64_t chunks, int participants, detail::ChunkBody body)
      : participants_(participants), body_(body) {
    for (int i = 0; i <= participants; ++i) {
      Range& range = ranges_[static_cast<std::size_t>(i)];
      const std::int64_t begin = chunks * i / participants;
      range.next.store(begin, std::memory_order_relaxed);
      if (i > 0) ranges_[static_cast<std::size_t>(i) - 1].end = begin;
    }
  }

  /// Runs chunks until none is left: those of participant `me`, then the others'.
  void work(int me) {
    for (int i = 0; i < participants_; ++i) {
      Range& range = ranges_[static_cast<std::size_t>((me + i) % participants_)];
      for (;;) {
        const std::int64_t chunk = range.next.fetch_add(1, std::memory_order_relaxed);
        if (chunk >= range.end) break;
        try {
          body_(chunk);
        } catch (...) {
          failure_.keep(chunk);
        }
      }
    }
  }
  [[nodiscard]] int participants() const { return participants_; }
  void rethrow() const { failure_.rethrow(); }

 private:
  struct alignas(64) Range {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };
  std::array<Range, MaxThreads + 1> ranges_;
  int participants_;
  detail::ChunkBody body_;
  FirstFailure failure_;
};

/// Marks this thread as working on a job; OpenMP inside the libraries is kept to one thread by
/// them.
class Inside {
 public:
  Inside() { in_parallel = true; }
  ~Inside() { in_parallel = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// Waits until `value` differs from `old`: spins for some microseconds, then sleeps.
template <class T>
void wait_for_change(const std::atomic<T>& value, T old) {
  for (int i = 0; i < 2000; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    spin_pause();
  }
  value.wait(old, std::memory_order_acquire);
}

/// A forked child has one thread: its copy of the pool has no workers, a lock or a count may be
/// held by one that is gone, and joining would wait for ever. It works alone.
std::atomic<bool> in_forked_child{false};

class Pool {
 public:
  Pool() {
    pthread_atfork(nullptr, nullptr, [] { in_forked_child.store(true); });
  }
  ~Pool() {
    if (in_forked_child.load()) {
      for (std::thread& worker : workers_) worker.detach();
      return;
    }
    stop_.store(true);
    announce();
    for (std::thread& worker : workers_) worker.join();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Runs the job with the help of workers; false when another thread has the pool.
  bool run(Job& job) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    while (static_cast<int>(workers_.size()) + 1 < job.participants()) {
      const int index = static_cast<int>(workers_.size()) + 1;
      workers_.emplace_back([this, index] { serve(index); });
    }
    job_.store(&job);
    announce();
    {
      const Inside inside;
      job.work(0);
    }
    job_.store(nullptr);  // later comers see none; wait for those that saw it
    for (int busy = busy_.load(); busy != 0; busy = busy_.load()) wait_for_change(busy_, busy);
    return true;
  }

 private:
  void announce() {
    generation_.fetch_add(1);
    generation_.notify_all();
  }

  void serve(int index) {
    this_worker = index;
    const Inside inside;
    std::uint32_t seen = 0;
    for (;;) {
      wait_for_change(generation_, seen);
      seen = generation_.load();
      if (stop_.load()) return;
      busy_.fetch_add(1);
      Job* job = job_.load();
      if (job != nullptr && index < job->participants()) job->work(index);
      if (busy_.fetch_sub(1) == 1) busy_.notify_all();
    }
  }

  std::mutex mutex_;
  std::vector<std::thread> workers_;
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<Job*> job_{nullptr};
  std::atomic<int> busy_{0};
  std::atomic<bool> stop_{false};
};

Pool& pool() {
  static Pool instance;
  return instance;
}

}  // namespace

int num_threads() { return thread_limit().load(std::memory_order_relaxed); }

void set_num_threads(int n) {
  STEADY_CHECK(Error, n >= 1 && n <= MaxThreads, "set_num_threads: needs 1 to {}; got {}",
               MaxThreads, n);
  thread_limit().store(n, std::memory_order_relaxed);
}

int worker_index() { return this_worker; }

namespace detail {

void run_chunks(std::int64_t chunks, ChunkBody body) {
  const auto threads =
      static_cast<int>(std::min<std::int64_t>(static_cast<std::int64_t>(num_threads()), chunks));
  if (threads > 1 && !in_parallel && !in_forked_child.load(std::memory_order_relaxed)) {
    Job job(chunks, threads, body);
    if (pool().run(job)) {
      job.rethrow();
      return;
    }
  }
  for (std::int64_t i = 0; i < chunks; ++i) body(i);
}

}  // namespace detail
}  // namespace steady
