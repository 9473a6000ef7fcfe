#include "tests/support/ranks.hpp"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <steadygrad/core/distributed/world.hpp>
#include <steadygrad/core/error.hpp>
#include <thread>

namespace steady::testing_support {
namespace {

using distributed::Communicator;
using distributed::Pending;

/// Where the threads lay out what they bring. One that has thrown lets the others go.
class Board {
 public:
  explicit Board(int size) : shown_(static_cast<std::size_t>(size)) {}
  [[nodiscard]] int size() const { return static_cast<int>(shown_.size()); }

  void show(int rank, const void* what) { shown_[static_cast<std::size_t>(rank)] = what; }
  [[nodiscard]] const void* shown(int rank) const { return shown_[static_cast<std::size_t>(rank)]; }

  /// Until all threads are here.
  void meet() {
    std::unique_lock lock(mutex_);
    const std::uint64_t now = meetings_;
    if (++here_ == size()) {
      here_ = 0;
      ++meetings_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return meetings_ != now || broken_; });
    if (meetings_ == now) throw Error("another rank has thrown");
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const void*> shown_;
  std::uint64_t meetings_ = 0;
  int here_ = 0;
  bool broken_ = false;
};

class Done final : public Pending {
 public:
  bool poll() override { return true; }
  void wait() override {}
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(Board& board, int rank) : board_(board), rank_(rank) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return board_.size(); }

  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) override {
    board_.show(rank_, mine.data());
    board_.meet();
    auto to = all.begin();
    for (int r = 0; r < size(); ++r) {
      to = std::copy_n(static_cast<const std::byte*>(board_.shown(r)), mine.size(), to);
    }
    board_.meet();
  }
  void broadcast_bytes(std::span<std::byte> bytes, int root) override {
    board_.show(rank_, bytes.data());
    board_.meet();
    if (rank_ != root) {
      std::copy_n(static_cast<const std::byte*>(board_.shown(root)), bytes.size(), bytes.data());
    }
    board_.meet();
  }
  void barrier() override { board_.meet(); }
  std::unique_ptr<Pending> start_sum(std::span<float> values,
                                     std::span<const double> weights) override {
    return sum(values, weights);
  }
  std::unique_ptr<Pending> start_sum(std::span<double> values,
                                     std::span<const double> weights) override {
    return sum(values, weights);
  }

 private:
  template <class T>
  std::unique_ptr<Pending> sum(std::span<T> values, std::span<const double> weights) {
    distributed::detail::check_weights(weights, size());
    std::vector<T> result(values.size());
    board_.show(rank_, values.data());
    board_.meet();
    std::vector<std::span<const T>> terms;
    for (int r = 0; r < size(); ++r) {
      terms.emplace_back(static_cast<const T*>(board_.shown(r)), values.size());
    }
    distributed::detail::weighted_sum<T>(terms, weights, result);
    board_.meet();
    std::ranges::copy(result, values.begin());
    return std::make_unique<Done>();
  }

  Board& board_;
  int rank_;
};

}  // namespace

std::vector<int> rank_counts() {
  const int size = distributed::world().size();
  return size > 1 ? std::vector{size} : std::vector{2, 3, 4};
}

void on_ranks(int size, const std::function<void(Communicator&)>& rank) {
  if (distributed::world().size() == size) {
    rank(distributed::world());
    return;
  }
  Board board(size);
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      ThreadCommunicator communicator(board, r);
      const distributed::UseCommunicator use(communicator);
      try {
        rank(communicator);
      } catch (...) {
        thrown[static_cast<std::size_t>(r)] = std::current_exception();
        board.leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::exception_ptr first;
  for (const std::exception_ptr& one : thrown) {
    if (!one) continue;
    if (!first) first = one;
    try {
      std::rethrow_exception(one);
    } catch (const std::exception& error) {
      if (std::string(error.what()) != "another rank has thrown") first = one;
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace steady::testing_support
