#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace steady::distributed {

/// A collective that has been started. One that dies before it is over leaves the ranks out of
/// step: the run can then only end.
class Pending {
 public:
  Pending() = default;
  virtual ~Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  /// Goes on as far as possible without waiting; whether it is over.
  virtual bool poll() = 0;
  /// Until it is over.
  virtual void wait() = 0;
};

/// The processes that train one model together, and what they do in common. Every function is a
/// collective: all ranks call the same ones in the same order, from one thread at a time, with the
/// same sizes. The same arguments on the same number of ranks give the same bits, on all of them.
class Communicator {
 public:
  Communicator() = default;
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// 0 .. size()-1.
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// all: what every rank has in `mine`, in rank order. Of size() times its size.
  virtual void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  /// Gives all ranks what `root` has in `bytes`.
  virtual void broadcast_bytes(std::span<std::byte> bytes, int root) = 0;
  /// Until all ranks are here, however long that takes: the other functions throw Error when the
  /// ranks do not come (STEADY_MPI_TIMEOUT, in seconds; 1800).
  virtual void barrier() = 0;

  /// Starts values[i] = sum over the ranks r of weights[r] * values_r[i], added in rank order in
  /// float64 and rounded once. Terms of weight 0 count as zero, whatever they are. `weights` are
  /// the same on all ranks. `values` may not be touched until it is over. Several may be under way:
  /// they end in the order in which they were started.
  [[nodiscard]] virtual std::unique_ptr<Pending> start_sum(std::span<float> values,
                                                           std::span<const double> weights) = 0;
  [[nodiscard]] virtual std::unique_ptr<Pending> start_sum(std::span<double> values,
                                                           std::span<const double> weights) = 0;

  /// What every rank has, in rank order.
  template <class T>
  requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::vector<T> all_gather(std::span<const T> mine) {
    std::vector<T> all(mine.size() * static_cast<std::size_t>(size()));
    gather_bytes(std::as_bytes(mine), std::as_writable_bytes(std::span<T>(all)));
    return all;
  }
  /// The same of one value.
  template <class T>
  requires std::is_arithmetic_v<T>
  [[nodiscard]] std::vector<T> all_gather(T mine) {
    return all_gather(std::span<const T>(&mine, 1));
  }
  /// The same of texts of any length.
  [[nodiscard]] std::vector<std::string> all_gather(std::string_view mine);

  template <class T>
  requires std::is_trivially_copyable_v<T>
  void broadcast(std::span<T> values, int root = 0) {
    broadcast_bytes(std::as_writable_bytes(values), root);
  }
  /// The text that `root` has.
  [[nodiscard]] std::string broadcast(std::string_view text, int root = 0);

  /// The sum over all ranks, in place.
  void all_reduce(std::span<float> values);
  void all_reduce(std::span<double> values);
};

/// One process alone.
class SingleProcess final : public Communicator {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) override;
  void broadcast_bytes(std::span<std::byte> bytes, int root) override;
  void barrier() override {}
  [[nodiscard]] std::unique_ptr<Pending> start_sum(std::span<float> values,
                                                   std::span<const double> weights) override;
  [[nodiscard]] std::unique_ptr<Pending> start_sum(std::span<double> values,
                                                   std::span<const double> weights) override;
};

namespace detail {

/// out[i] = sum over r of weights[r] * parts[r][i], in float64, terms of weight 0 left out. `parts`
/// may contain `out`.
template <class T>
void weighted_sum(std::span<const std::span<const T>> parts, std::span<const double> weights,
                  std::span<T> out);

/// Throws ShapeError unless there is one weight for each of `size` ranks.
void check_weights(std::span<const double> weights, int size);

}  // namespace detail
}  // namespace steady::distributed
