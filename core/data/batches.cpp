#include <algorithm>
#include <numeric>
#include <steadygrad/core/data/batches.hpp>
#include <steadygrad/core/data/rows.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/random.hpp>
#include <utility>

namespace steady {

Batches::Batches(Dataset data, const BatchOptions& options)
    : data_(std::move(data)), size_(options.size), start_(options.start), shard_(options.shard) {
  const std::int64_t n = data_.size();
  STEADY_CHECK(ShapeError, size_ >= 1, "batches: size must be at least 1; got {}", size_);
  STEADY_CHECK(ShapeError, n >= 1, "batches: the data set has no samples; got x {}",
               describe(data_.x));
  const std::int64_t full = n / size_;
  const bool rest_joins = options.tail == Tail::Merge && full > 0;
  const bool rest_stays = n % size_ != 0 && options.tail != Tail::Drop && !rest_joins;
  count_ = full + (rest_stays ? 1 : 0);
  used_ = options.tail == Tail::Drop ? full * size_ : n;
  STEADY_CHECK(ShapeError, count_ >= 1,
               "batches: no batch at all; got {} samples, size {} and Tail::Drop (use a size of at "
               "most {}, or Tail::Keep)",
               n, size_, n);
  STEADY_CHECK(ShapeError, start_ >= 0 && start_ <= count_,
               "batches: start must be in [0, {}]; got {}", count_, start_);
  check_shard("batches", shard_);
  if (options.shuffle) {
    order_ = Random(options.seed, fmt::format("batches/epoch{}", options.epoch)).permutation(n);
  } else {
    order_.resize(static_cast<std::size_t>(n));
    std::iota(order_.begin(), order_.end(), 0);
  }
}

std::int64_t Batches::size(std::int64_t index) const {
  STEADY_CHECK(ShapeError, index >= 0 && index < count_,
               "batches: index must be in [0, {}); got {}", count_, index);
  return index + 1 < count_ ? size_ : used_ - index * size_;
}

std::int64_t Batches::smallest() const { return std::min(size(0), size(count_ - 1)); }

Batch Batches::operator[](std::int64_t index) const {
  const std::int64_t samples = size(index);
  const std::int64_t first = index * size_ + shard_.begin(samples);
  const auto rows = order().subspan(static_cast<std::size_t>(first),
                                    static_cast<std::size_t>(shard_.count(samples)));
  return {copy_rows(data_.x, rows), copy_rows(data_.y, rows), index, first};
}

Batches batches(const Dataset& data, const BatchOptions& options) { return {data, options}; }

}  // namespace steady
