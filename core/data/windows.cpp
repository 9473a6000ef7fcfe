#include <steadygrad/core/data/windows.hpp>

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/random.hpp>
#include <utility>

namespace steady {

Windows::Windows(Tensor tokens, const WindowOptions& options)
    : tokens_(std::move(tokens)),
      context_(options.context),
      size_(options.size),
      start_(options.start),
      shard_(options.shard) {
  check_shard("windows", shard_);
  STEADY_CHECK(ShapeError,
               tokens_.defined() && tokens_.rank() == 1 && tokens_.dtype() == Dtype::I64,
               "windows: tokens must be i64 [N]; got {}", describe(tokens_));
  STEADY_CHECK(ShapeError, context_ >= 1 && size_ >= 1,
               "windows: context and size must be at least 1; got {} and {}", context_, size_);
  const std::int64_t n = tokens_.numel();
  STEADY_CHECK(ShapeError, n > context_, "windows: context {} needs at least {} tokens; got {}",
               context_, context_ + 1, n);
  const std::int64_t full = (n - 1) / context_;
  begins_.resize(static_cast<std::size_t>(full));
  if (options.shuffle) {
    STEADY_CHECK(ShapeError, size_ <= full,
                 "windows: {} tokens give {} windows of {}, not one batch of {} (use a size of at "
                 "most {})",
                 n, full, context_, size_, full);
    Random random(options.seed, fmt::format("windows/epoch{}", options.epoch));
    for (std::int64_t& begin : begins_) begin = random.below(n - context_);
    count_ = full / size_;
  } else {
    for (std::int64_t i = 0; i < full; ++i) begins_[static_cast<std::size_t>(i)] = i * context_;
    rest_ = (n - 1) % context_;
    count_ = (full + size_ - 1) / size_ + (rest_ > 0 ? 1 : 0);
  }
  STEADY_CHECK(ShapeError, start_ >= 0 && start_ <= count_,
               "windows: start must be in [0, {}]; got {}", count_, start_);
}

Batch Windows::operator[](std::int64_t index) const {
  STEADY_CHECK(ShapeError, index >= 0 && index < count_,
               "windows: index must be in [0, {}); got {}", count_, index);
  const bool is_rest = rest_ > 0 && index == count_ - 1;
  const std::int64_t begin_of_all = is_rest ? full_windows() : index * size_;
  const std::int64_t all = is_rest ? 1 : std::min(size_, full_windows() - begin_of_all);
  const std::int64_t first = begin_of_all + shard_.begin(all);
  const std::int64_t rows = shard_.count(all);
  const std::int64_t length = is_rest ? rest_ : context_;
  Batch batch{Tensor::empty({rows, length}, Dtype::I64), Tensor::empty({rows, length}, Dtype::I64),
              index, first};
  const std::int64_t* const tokens = tokens_.data<std::int64_t>().data();
  auto x = batch.x.mutable_data<std::int64_t>("windows").begin();
  auto y = batch.y.mutable_data<std::int64_t>("windows").begin();
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t begin =
        is_rest ? first * context_ : begins_[static_cast<std::size_t>(first + r)];
    x = std::copy_n(tokens + begin, length, x);
    y = std::copy_n(tokens + begin + 1, length, y);
  }
  return batch;
}

Windows windows(const Tensor& tokens, const WindowOptions& options) { return {tokens, options}; }

}  // namespace steady
