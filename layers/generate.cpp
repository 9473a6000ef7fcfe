#include <steadygrad/layers/generate.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

/// The `kept` likeliest token ids, in ascending order: a logit that moves by a rounding error moves
/// no other token's place among them.
template <class T>
std::vector<std::int64_t> likeliest(std::span<const T> logits, std::int64_t kept) {
  std::vector<std::int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  if (kept == std::ssize(ids)) return ids;
  std::nth_element(ids.begin(), ids.begin() + kept, ids.end(), [&](std::int64_t a, std::int64_t b) {
    const T x = logits[static_cast<std::size_t>(a)];
    const T y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  });
  ids.resize(static_cast<std::size_t>(kept));
  std::ranges::sort(ids);
  return ids;
}

template <class T>
std::int64_t draw(std::span<const T> logits, const SampleOptions& o, Random& random) {
  for (const T logit : logits) {
    STEADY_CHECK(NonFiniteError, !std::isnan(logit), "sample: a logit is NaN");
  }
  const auto all = static_cast<std::int64_t>(logits.size());
  const std::int64_t kept = o.temperature == 0.0 ? 1 : o.top_k == 0 ? all : std::min(o.top_k, all);
  const std::vector<std::int64_t> ids = likeliest(logits, kept);
  const auto logit = [&](std::int64_t id) {
    return static_cast<double>(logits[static_cast<std::size_t>(id)]);
  };
  double largest = logit(ids.front());
  for (const std::int64_t id : ids) largest = std::max(largest, logit(id));
  STEADY_CHECK(NonFiniteError, std::isfinite(largest), "sample: the largest logit is {}", largest);
  if (o.temperature == 0.0) return ids.front();
  std::vector<double> sums;
  double sum = 0.0;
  for (const std::int64_t id : ids) {
    sums.push_back(sum += std::exp((logit(id) - largest) / o.temperature));
  }
  const auto at = std::upper_bound(sums.begin(), sums.end(), random.uniform() * sum);
  return ids[static_cast<std::size_t>(std::min(at - sums.begin(), std::ssize(ids) - 1))];
}

/// The last row of logits [1, T, vocab].
Tensor last_row(const Tensor& logits) {
  return reshape(slice(logits, 1, logits.dim(1) - 1, logits.dim(1)), {logits.dim(2)});
}

Tensor as_ids(std::span<const std::int64_t> tokens) {
  return Tensor::from<std::int64_t>({1, std::ssize(tokens)}, tokens);
}

}  // namespace

std::int64_t sample(const Tensor& logits, const SampleOptions& o, Random& random) {
  check_defined("sample", "logits", logits);
  STEADY_CHECK(ShapeError, logits.rank() == 1 && logits.numel() >= 1,
               "sample: needs logits [vocab]; got {}", describe(logits));
  STEADY_CHECK(Error, std::isfinite(o.temperature) && o.temperature >= 0.0 && o.top_k >= 0,
               "sample: temperature and top_k must not be negative; got {} and {}", o.temperature,
               o.top_k);
  return dispatch_float("sample", logits.dtype(),
                        [&]<FloatElement T>() { return draw(logits.data<T>(), o, random); });
}

std::vector<std::int64_t> generate(Decoder& model, std::span<const std::int64_t> prompt,
                                   const GenerateOptions& o) {
  STEADY_CHECK(Error, !prompt.empty() && o.count >= 0,
               "generate: needs a prompt of one token or more and count >= 0; got {} tokens, "
               "count {}",
               prompt.size(), o.count);
  STEADY_CHECK(Error, model.mode() != Mode::Train,
               "generate: the model is in train mode: call eval() first");
  const NoRecord inference;
  Random random(o.seed, "generate");
  std::vector<std::int64_t> tokens(prompt.begin(), prompt.end());
  const std::int64_t context = model.o.context;
  KeyValueCache cache = model.make_cache();
  // The window starts at `start`; its first `held` tokens are in the cache.
  std::int64_t start = std::max<std::int64_t>(0, std::ssize(tokens) - context);
  for (std::int64_t i = 0; i < o.count; ++i) {
    if (std::ssize(tokens) - start > context) {
      start = std::ssize(tokens) - (context + 1) / 2;
      cache.clear();
    }
    const std::span<const std::int64_t> window =
        std::span(tokens).subspan(static_cast<std::size_t>(start));
    const auto held = static_cast<std::size_t>(cache.length());
    const Tensor logits =
        o.cache ? model(as_ids(window.subspan(held)), {.cache = &cache}) : model(as_ids(window));
    tokens.push_back(sample(last_row(logits), o.sample, random));
    if (o.on_token) o.on_token(tokens.back());
  }
  return tokens;
}

}  // namespace steady
