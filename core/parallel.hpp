#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace steady {

/// The most threads one loop can use.
inline constexpr int MaxThreads = 64;

/// Threads the library may use; starts at OMP_NUM_THREADS or the number of processors.
[[nodiscard]] int num_threads();
/// Sets it for all later work. Throws Error unless 1 <= n <= MaxThreads. Results never depend on
/// it.
void set_num_threads(int n);
/// Index of the calling worker inside a parallel_for, 0 .. num_threads()-1; 0 outside.
[[nodiscard]] int worker_index();

namespace detail {

/// A non-owning reference to a callable void(int64_t).
class ChunkBody {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, ChunkBody>) ChunkBody(F& f)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, std::int64_t chunk) { (*static_cast<F*>(object))(chunk); }) {}
  void operator()(std::int64_t chunk) const { call_(object_, chunk); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t);
};

/// Runs body(0) .. body(chunks-1), each once, on up to num_threads() threads; serially inside
/// another loop, in a forked child, and while a loop of another thread has the workers. Rethrows
/// the exception of the lowest chunk that threw.
void run_chunks(std::int64_t chunks, ChunkBody body);

}  // namespace detail

/// Calls body(begin, end) for [0, n) cut into pieces of `chunk` elements. The cut depends on n and
/// chunk alone, never on the thread count: choose `chunk` from the shape. An exception reaches the
/// caller (that of the first failing chunk). `begin / chunk` is the chunk's index.
template <class F>
void parallel_for(std::int64_t n, std::int64_t chunk, F&& body) {
  if (n <= 0) return;
  const std::int64_t size = std::max<std::int64_t>(chunk, 1);
  if (n <= size) {
    body(std::int64_t{0}, n);
    return;
  }
  auto run = [&](std::int64_t index) { body(index * size, std::min(n, (index + 1) * size)); };
  detail::run_chunks((n + size - 1) / size, run);
}

/// Sum of value(begin, end) over the chunks of [0, n), added in chunk order: the same bits for any
/// number of threads.
template <class F>
[[nodiscard]] double parallel_sum(std::int64_t n, std::int64_t chunk, F&& value) {
  if (n <= 0) return 0.0;
  const std::int64_t size = std::max<std::int64_t>(chunk, 1);
  if (n <= size) return value(std::int64_t{0}, n);
  std::vector<double> partial(static_cast<std::size_t>((n + size - 1) / size));
  parallel_for(n, size, [&](std::int64_t begin, std::int64_t end) {
    partial[static_cast<std::size_t>(begin / size)] = value(begin, end);
  });
  double sum = 0.0;
  for (const double p : partial) sum += p;
  return sum;
}

}  // namespace steady
