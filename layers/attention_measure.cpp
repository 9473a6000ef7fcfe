#include <steadygrad/layers/attention_measure.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <steadygrad/core/kernels/gemm.hpp>
#include <steadygrad/core/parallel.hpp>
#include <vector>

namespace steady::detail {
namespace {

/// What one head of one batch comes to.
struct Summary {
  double largest = -std::numeric_limits<double>::infinity();
  double entropy = 0;
  std::int64_t queries = 0;
  bool finite = true;

  void add(const Summary& next) {
    largest = std::max(largest, next.largest);
    entropy += next.entropy;
    queries += next.queries;
    finite &= next.finite;
  }
};

std::vector<char> visible_keys(const Tensor& mask, std::int64_t batch, std::int64_t keys) {
  std::vector<char> seen(static_cast<std::size_t>(keys), 1);
  if (!mask.defined()) return seen;
  dispatch_all(mask.dtype(), [&]<Element T>() {
    const auto row = mask.data<T>().subspan(static_cast<std::size_t>(batch * mask.dim(1)));
    for (std::size_t j = 0; j < seen.size(); ++j) seen[j] = row[j] != T(0) ? 1 : 0;
  });
  return seen;
}

/// With m the largest score and Z = sum exp(s - m): entropy = log Z - sum exp(s - m) (s - m) / Z.
template <class T>
void add_query(std::span<const T> score, std::span<const char> seen, Summary& summary) {
  T largest = -std::numeric_limits<T>::infinity();
  bool any = false;
  for (std::size_t j = 0; j < score.size(); ++j) {
    if (seen[j] == 0) continue;
    any = true;
    summary.finite &= std::isfinite(score[j]);
    largest = std::max(largest, score[j]);
  }
  if (!any) return;
  double total = 0;
  double weighted = 0;
  for (std::size_t j = 0; j < score.size(); ++j) {
    if (seen[j] == 0) continue;
    const T d = score[j] - largest;
    const auto p = static_cast<double>(std::exp(d));
    total += p;
    if (p > 0) weighted += p * static_cast<double>(d);
  }
  summary.largest = std::max(summary.largest, static_cast<double>(largest));
  summary.entropy += std::log(total) - weighted / total;
  ++summary.queries;
}

template <class T>
Summary summarize(const AttentionScores& s, std::int64_t batch, std::int64_t head) {
  const std::int64_t queries = s.q.dim(1);
  const std::int64_t heads = s.q.dim(2);
  const std::int64_t width = s.q.dim(3);
  const std::int64_t kv_heads = s.k.dim(2);
  const std::int64_t key_head = head / (heads / kv_heads);
  std::vector<T> scores(static_cast<std::size_t>(queries * s.keys));
  const auto from = [](std::int64_t offset) { return static_cast<std::size_t>(offset); };
  kernels::gemm<T>({.m = queries,
                    .n = s.keys,
                    .k = width,
                    .transpose_b = true,
                    .lda = heads * width,
                    .ldb = kv_heads * width},
                   static_cast<T>(s.scale),
                   s.q.data<T>().subspan(from((batch * queries * heads + head) * width)),
                   s.k.data<T>().subspan(from((batch * s.k.dim(1) * kv_heads + key_head) * width)),
                   T(0), scores);
  const std::vector<char> seen = visible_keys(s.mask, batch, s.keys);
  Summary summary;
  for (std::int64_t i = 0; i < queries; ++i) {
    const std::int64_t count =
        s.causal ? std::clamp<std::int64_t>(i + s.keys - queries + 1, 0, s.keys) : s.keys;
    add_query<T>(std::span<const T>(scores).subspan(from(i * s.keys), from(count)), seen, summary);
  }
  return summary;
}

}  // namespace

void measure_attention(const MeasureSink& sink, const AttentionScores& scores) {
  const std::int64_t heads = scores.q.dim(2);
  const std::int64_t pairs = scores.q.dim(0) * heads;
  if (scores.q.numel() == 0 || scores.keys == 0) return;
  std::vector<Summary> parts(static_cast<std::size_t>(pairs));
  dispatch_float("measure", scores.q.dtype(), [&]<FloatElement T>() {
    parallel_for(pairs, 1, [&](std::int64_t begin, std::int64_t) {
      parts[static_cast<std::size_t>(begin)] = summarize<T>(scores, begin / heads, begin % heads);
    });
  });
  Summary all;
  for (const Summary& part : parts) all.add(part);
  if (all.queries == 0) return;
  constexpr double NaN = std::numeric_limits<double>::quiet_NaN();
  sink("logit_max", all.finite ? all.largest : NaN);
  sink("entropy_mean", all.finite ? all.entropy / static_cast<double>(all.queries) : NaN);
}

}  // namespace steady::detail
