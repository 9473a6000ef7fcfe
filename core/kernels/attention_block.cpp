#include <steadygrad/core/kernels/attention_block.hpp>

#include <algorithm>
#include <concepts>
#include <limits>
#include <steadygrad/core/kernels/gemm.hpp>

namespace steady::kernels {
namespace {

using Index = std::int64_t;

/// Distance between the rows of a strip: whole vectors, and not a multiple of 2 KiB, which would
/// put a column of the strip into one cache set.
[[nodiscard]] Index strip_stride(const Attention& a) {
  const Index stride = (a.keys + 15) / 16 * 16;
  return stride % 512 == 0 ? stride + 16 : stride;
}

struct WordScratch;

}  // namespace

std::vector<KeyRange> key_ranges(const Attention& a) {
  std::vector<KeyRange> ranges(static_cast<std::size_t>(a.batch), {0, a.keys, false});
  if (a.keep.empty()) return ranges;
  for (Index b = 0; b < a.batch; ++b) {
    const auto keep =
        a.keep.subspan(static_cast<std::size_t>(b * a.keys), static_cast<std::size_t>(a.keys));
    KeyRange& range = ranges[static_cast<std::size_t>(b)];
    while (range.last > 0 && keep[static_cast<std::size_t>(range.last - 1)] == 0) --range.last;
    while (range.first < range.last && keep[static_cast<std::size_t>(range.first)] == 0)
      ++range.first;
    const auto begin = keep.begin();
    range.holes = std::find(begin + range.first, begin + range.last, 0) != begin + range.last;
  }
  return ranges;
}

// Two strips of scores stay in the second-level cache.
Index attention_block_rows(const Attention& a) { return a.keys <= 1024 ? 64 : 32; }

AttentionBlock attention_block(const Attention& a, const KeyRange& range, Index batch, Index head,
                               Index index) {
  const Index first = index * attention_block_rows(a);
  const Index rows = std::min(attention_block_rows(a), a.queries - first);
  Strip strip{.rows = rows,
              .width = range.last - range.first,
              .stride = strip_stride(a),
              .seen = range.last - range.first,
              .step = 0};
  if (a.causal) {
    strip.step = 1;
    strip.seen = first + 1 + a.keys - a.queries - range.first;
    strip.width = std::clamp<Index>(strip.seen + rows - 1, 0, strip.width);
  }
  return {.batch = batch,
          .head = head,
          .kv_head = head / (a.heads / a.kv_heads),
          .first_query = first,
          .first_key = range.first,
          .holes = range.holes,
          .strip = strip};
}

template <class T>
HeadKeys<T> head_keys(const Attention& a, const KeyRange& range, Index batch, Index kv_head,
                      std::span<const T> rows, Scratch& scratch) {
  const Index keys = range.last - range.first;
  const bool single = std::same_as<T, float> && a.queries == 1;  // score_query() reads rows
  if (single || keys == 0) return {rows, {}, 0};
  const Index stride = strip_stride(a);
  const std::span<T> columns = scratch.take<T>(a.width * stride);
  const Index first = ((batch * a.capacity + range.first) * a.kv_heads + kv_head) * a.width;
  transpose(keys, a.width, rows.data() + first, a.kv_heads * a.width, columns.data(), stride);
  return {rows, columns, stride};
}

template <class T>
std::size_t BlockProducts<T>::query() const {
  return static_cast<std::size_t>(((b_.batch * a_.queries + b_.first_query) * a_.heads + b_.head) *
                                  a_.width);
}

template <class T>
std::size_t BlockProducts<T>::key() const {
  return static_cast<std::size_t>(
      ((b_.batch * a_.capacity + b_.first_key) * a_.kv_heads + b_.kv_head) * a_.width);
}

template <class T>
void BlockProducts<T>::mask_holes(std::span<T> s) const {
  const std::uint8_t* keep = a_.keep.data() + b_.batch * a_.keys + b_.first_key;
  for (Index r = 0; r < b_.strip.rows; ++r) {
    T* row = s.data() + r * b_.strip.stride;
    for (Index j = 0; j < b_.strip.width; ++j)
      row[j] = keep[j] != 0 ? row[j] : -std::numeric_limits<T>::infinity();
  }
}

template <class T>
void BlockProducts<T>::scores(T alpha, std::span<const T> x, const HeadKeys<T>& y, bool masked,
                              std::span<T> s) const {
  bool done = false;
  if constexpr (std::same_as<T, float>) {
    done = b_.strip.rows == 1;
    if (done)
      score_query(x.data() + query(), y.rows.data() + key(), key_stride(), b_.strip.width, a_.width,
                  alpha, s.data());
  }
  if (!done)
    gemm<T>({.m = b_.strip.rows,
             .n = b_.strip.width,
             .k = a_.width,
             .lda = query_stride(),
             .ldb = y.stride,
             .ldc = b_.strip.stride},
            alpha, x.subspan(query()), y.columns, T{0}, s);
  if (masked && b_.holes) mask_holes(s);
}

template <class T>
void BlockProducts<T>::to_queries(std::span<const T> s, std::span<const T> x,
                                  std::span<T> y) const {
  if constexpr (std::same_as<T, float>) {
    if (b_.strip.rows == 1) {
      weigh_values(s.data(), x.data() + key(), key_stride(), b_.strip.width, a_.width,
                   y.data() + query());
      return;
    }
  }
  gemm<T>({.m = b_.strip.rows,
           .n = a_.width,
           .k = b_.strip.width,
           .lda = b_.strip.stride,
           .ldb = key_stride(),
           .ldc = query_stride()},
          T{1}, s, x.subspan(key()), T{0}, y.subspan(query()));
}

template <class T>
void BlockProducts<T>::to_keys(std::span<const T> s, std::span<const T> x, T beta,
                               std::span<T> y) const {
  gemm<T>({.m = b_.strip.width,
           .n = a_.width,
           .k = b_.strip.rows,
           .transpose_a = true,
           .lda = b_.strip.stride,
           .ldb = query_stride(),
           .ldc = key_stride()},
          T{1}, s, x.subspan(query()), beta, y.subspan(key()));
}

template <class T>
void BlockProducts<T>::scale_queries(std::span<const T> factor, std::span<T> y) const {
  T* row = y.data() + query();
  for (const T f : factor) {
    for (Index c = 0; c < a_.width; ++c) row[c] *= f;
    row += query_stride();
  }
}

template <class T>
void BlockProducts<T>::draw_dropout(std::span<T> keep) const {
  // Words come fastest from a multiple of 4 on and by the 128; those too many are not used.
  constexpr Index Start = 4;
  constexpr Index Count = 128;
  const auto words =
      thread_scratch<WordScratch>().template take<std::uint32_t>(b_.strip.width + Start + Count);
  const T scale = static_cast<T>(a_.dropout.scale);
  for (Index r = 0; r < b_.strip.rows; ++r) {
    const Index n = b_.strip.visible(r);
    if (n == 0) continue;
    const Index at = (row() + r) * a_.keys + b_.first_key;
    const Index skip = at % Start;
    const Index drawn = (n + skip + Count - 1) / Count * Count;
    a_.dropout.words(static_cast<std::uint64_t>(at - skip),
                     words.first(static_cast<std::size_t>(drawn)));
    const std::uint32_t* word = words.data() + skip;
    T* factors = keep.data() + r * b_.strip.stride;
    for (Index j = 0; j < n; ++j) factors[j] = word[j] < a_.dropout.threshold ? T{0} : scale;
  }
}

template HeadKeys<float> head_keys(const Attention&, const KeyRange&, Index, Index,
                                   std::span<const float>, Scratch&);
template HeadKeys<double> head_keys(const Attention&, const KeyRange&, Index, Index,
                                    std::span<const double>, Scratch&);
template class BlockProducts<float>;
template class BlockProducts<double>;

}  // namespace steady::kernels
