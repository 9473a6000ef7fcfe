#include <steadygrad/core/kernels/attention.hpp>

#include <algorithm>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/attention_rows.hpp>
#include <steadygrad/core/kernels/gemm.hpp>
#include <steadygrad/core/kernels/scratch.hpp>
#include <steadygrad/core/parallel.hpp>
#include <vector>

namespace steady::kernels {
namespace {

using Index = std::int64_t;

/// The keys of one batch element from the first to one past the last that are not masked; `holes`:
/// some between them are. A query sees a key exactly when its range reaches beyond `first`.
struct KeyRange {
  Index first = 0;
  Index last = 0;
  bool holes = false;
};

[[nodiscard]] std::vector<KeyRange> key_ranges(const Attention& a) {
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

/// Queries of one block: two strips of scores stay in the second-level cache.
[[nodiscard]] Index block_rows(const Attention& a) { return a.keys <= 1024 ? 64 : 32; }

/// Distance between the rows of a strip: whole vectors, and not a multiple of 2 KiB, which would
/// put a column of the strip into one cache set.
[[nodiscard]] Index strip_stride(const Attention& a) {
  const Index stride = (a.keys + 15) / 16 * 16;
  return stride % 512 == 0 ? stride + 16 : stride;
}

/// Some queries of one head against the keys they may see; the strip's columns are the keys from
/// `first_key` on.
struct Block {
  Index batch;
  Index head;
  Index kv_head;
  Index first_query;
  Index first_key;
  bool holes;
  Strip strip;
};

[[nodiscard]] Block make_block(const Attention& a, const KeyRange& range, Index batch, Index head,
                               Index index) {
  const Index first = index * block_rows(a);
  const Index rows = std::min(block_rows(a), a.queries - first);
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
  return {batch, head, head / (a.heads / a.kv_heads), first, range.first, range.holes, strip};
}

/// The products of one block: operands in place, rows `ld` apart.
template <class T>
struct Operands {
  const Attention& a;

  [[nodiscard]] Index query_ld() const { return a.heads * a.width; }
  [[nodiscard]] Index key_ld() const { return a.kv_heads * a.width; }
  [[nodiscard]] std::size_t query(const Block& b) const {
    return static_cast<std::size_t>(((b.batch * a.queries + b.first_query) * a.heads + b.head) *
                                    a.width);
  }
  [[nodiscard]] std::size_t key(const Block& b) const {
    return static_cast<std::size_t>(
        ((b.batch * a.capacity + b.first_key) * a.kv_heads + b.kv_head) * a.width);
  }
  [[nodiscard]] std::size_t row(const Block& b) const {
    return static_cast<std::size_t>((b.batch * a.heads + b.head) * a.queries + b.first_query);
  }

  /// s = alpha x y^T; x: rows of queries, y: rows of keys.
  void scores(const Block& b, T alpha, std::span<const T> x, std::span<const T> y,
              std::span<T> s) const {
    gemm<T>({.m = b.strip.rows,
             .n = b.strip.width,
             .k = a.width,
             .transpose_b = true,
             .lda = query_ld(),
             .ldb = key_ld(),
             .ldc = b.strip.stride},
            alpha, x.subspan(query(b)), y.subspan(key(b)), T{0}, s);
  }
  /// y = s x; x: rows of keys, y: rows of queries.
  void to_queries(const Block& b, std::span<const T> s, std::span<const T> x,
                  std::span<T> y) const {
    gemm<T>({.m = b.strip.rows,
             .n = a.width,
             .k = b.strip.width,
             .lda = b.strip.stride,
             .ldb = key_ld(),
             .ldc = query_ld()},
            T{1}, s, x.subspan(key(b)), T{0}, y.subspan(query(b)));
  }
  /// y = s^T x + beta y; x: rows of queries, y: rows of keys.
  void to_keys(const Block& b, std::span<const T> s, std::span<const T> x, T beta,
               std::span<T> y) const {
    gemm<T>({.m = b.strip.width,
             .n = a.width,
             .k = b.strip.rows,
             .transpose_a = true,
             .lda = b.strip.stride,
             .ldb = query_ld(),
             .ldc = key_ld()},
            T{1}, s, x.subspan(query(b)), beta, y.subspan(key(b)));
  }
  void zero_queries(const Block& b, std::span<T> y) const {
    for (Index i = 0; i < b.strip.rows; ++i)
      std::fill_n(y.data() + query(b) + static_cast<std::size_t>(i * query_ld()), a.width, T{0});
  }
};

/// Masked keys between kept ones get a weight of 0 through a score of -inf.
template <class T>
void mask_holes(const Attention& a, const Block& b, std::span<T> s) {
  if (!b.holes) return;
  const std::uint8_t* keep = a.keep.data() + b.batch * a.keys + b.first_key;
  for (Index r = 0; r < b.strip.rows; ++r) {
    T* row = s.data() + r * b.strip.stride;
    for (Index j = 0; j < b.strip.width; ++j)
      row[j] = keep[j] != 0 ? row[j] : -std::numeric_limits<T>::infinity();
  }
}

struct WordScratch;

/// The factors of the dropout, 0 or its scale, for the keys that the block sees.
template <class T>
void draw_dropout(const Attention& a, const Block& b, std::span<T> keep) {
  const auto words = thread_scratch<WordScratch>().template take<std::uint32_t>(b.strip.width);
  const T scale = static_cast<T>(a.dropout.scale);
  const auto first_row = static_cast<Index>(Operands<T>{a}.row(b));
  for (Index r = 0; r < b.strip.rows; ++r) {
    const Index n = b.strip.visible(r);
    a.dropout.words(static_cast<std::uint64_t>((first_row + r) * a.keys + b.first_key),
                    words.first(static_cast<std::size_t>(n)));
    T* row = keep.data() + r * b.strip.stride;
    for (Index j = 0; j < n; ++j)
      row[j] = words[static_cast<std::size_t>(j)] < a.dropout.threshold ? T{0} : scale;
  }
}

/// rows[r, :] *= factor[r] for `width` columns.
template <class T>
void scale_rows(const T* factor, Index rows, Index width, Index ld, T* y) {
  for (Index r = 0; r < rows; ++r, y += ld)
    for (Index c = 0; c < width; ++c) y[c] *= factor[r];
}

void check(const char* op, const Attention& a, std::size_t q, std::size_t k, std::size_t lse) {
  STEADY_CHECK(Error,
               a.kv_heads >= 1 && a.heads % a.kv_heads == 0 && 0 <= a.keys && a.keys <= a.capacity,
               "{}: needs heads a multiple of kv_heads and keys within the capacity; got {} and "
               "{}, {} of {}",
               op, a.heads, a.kv_heads, a.keys, a.capacity);
  const Index rows = a.batch * a.queries * a.heads;
  STEADY_CHECK(Error,
               static_cast<Index>(q) == rows * a.width && static_cast<Index>(lse) == rows &&
                   static_cast<Index>(k) == a.batch * a.capacity * a.kv_heads * a.width &&
                   (a.keep.empty() || std::ssize(a.keep) == a.batch * a.keys),
               "{}: buffers must fit batch {}, queries {}, capacity {}, heads {} and {}, width {}; "
               "got {} in q, {} in k, {} in lse, {} in keep",
               op, a.batch, a.queries, a.capacity, a.heads, a.kv_heads, a.width, q, k, lse,
               a.keep.size());
}

struct StripScratch;

/// Multiply-adds that are worth a task of their own: about 10 microseconds.
constexpr Index SmallestWork = Index{1} << 20;

template <class T>
void forward_block(const Attention& a, const Block& b, std::span<const T> q, std::span<const T> k,
                   std::span<const T> v, std::span<T> y, std::span<double> lse) {
  const Operands<T> at{a};
  if (b.strip.width == 0) {
    at.zero_queries(b, y);
    std::fill_n(lse.data() + at.row(b), b.strip.rows, -std::numeric_limits<double>::infinity());
    return;
  }
  const bool drops = a.dropout.threshold != 0;
  const Index size = b.strip.rows * b.strip.stride;
  const auto scratch =
      thread_scratch<StripScratch>().take<T>((drops ? 2 : 1) * size + b.strip.rows);
  const auto factor = scratch.first(static_cast<std::size_t>(b.strip.rows));
  const auto s = scratch.subspan(factor.size(), static_cast<std::size_t>(size));
  at.scores(b, static_cast<T>(a.scale), q, k, s);
  mask_holes(a, b, s);
  softmax_strip(b.strip, s.data(), factor.data(), lse.data() + at.row(b));
  if (drops) {
    const auto keep = scratch.subspan(factor.size() + s.size());
    draw_dropout(a, b, keep);
    for (Index r = 0; r < b.strip.rows; ++r) {
      T* row = s.data() + r * b.strip.stride;
      const T* factors = keep.data() + r * b.strip.stride;
      for (Index j = 0; j < b.strip.visible(r); ++j) row[j] *= factors[j];
    }
  }
  at.to_queries(b, s, v, y);
  scale_rows(factor.data(), b.strip.rows, a.width, at.query_ld(), y.data() + at.query(b));
}

/// What attention_backward writes; an empty span is not wanted.
template <class T>
struct Gradients {
  std::span<T> dq, dk, dv;
};

/// One block's part. `first`: the sums over the blocks of this key head begin here.
template <class T>
void backward_block(const Attention& a, const Block& b, bool first, std::span<const T> dy,
                    std::span<const T> q, std::span<const T> k, std::span<const T> v,
                    std::span<const double> lse, const Gradients<T>& out) {
  const Operands<T> at{a};
  const bool drops = a.dropout.threshold != 0;
  const auto size = static_cast<std::size_t>(b.strip.rows * b.strip.stride);
  const auto scratch =
      thread_scratch<StripScratch>().take<T>(static_cast<Index>((drops ? 3 : 2) * size));
  const auto s = scratch.first(size);
  const auto ds = scratch.subspan(size, size);
  const auto keep = scratch.subspan(2 * size);
  at.scores(b, static_cast<T>(a.scale), q, k, s);
  mask_holes(a, b, s);
  at.scores(b, T{1}, dy, v, ds);
  if (drops) draw_dropout(a, b, keep);
  softmax_strip_backward(b.strip, lse.data() + at.row(b), static_cast<T>(a.scale),
                         drops ? keep.data() : nullptr, s.data(), ds.data());
  const T beta = first ? T{0} : T{1};
  if (!out.dv.empty()) at.to_keys(b, s, dy, beta, out.dv);
  if (!out.dq.empty()) at.to_queries(b, ds, k, out.dq);
  if (!out.dk.empty()) at.to_keys(b, ds, q, beta, out.dk);
}

/// Zeros where no query ever looks: the keys outside [first, last).
template <class T>
void zero_outside(const Attention& a, Index batch, Index kv_head, Index first, Index last,
                  std::span<T> dk) {
  if (dk.empty()) return;
  for (Index j = 0; j < a.capacity; ++j) {
    if (j >= first && j < last) continue;
    std::fill_n(dk.data() + ((batch * a.capacity + j) * a.kv_heads + kv_head) * a.width, a.width,
                T{0});
  }
}

}  // namespace

template <class T>
void attention_forward(const Attention& a, std::span<const T> q, std::span<const T> k,
                       std::span<const T> v, std::span<T> y, std::span<double> lse) {
  check("attention", a, q.size(), k.size(), lse.size());
  const std::vector<KeyRange> ranges = key_ranges(a);
  const Index rows = block_rows(a);
  const Index blocks = (a.queries + rows - 1) / rows;
  const Index work = 2 * std::min(rows, a.queries) * a.keys * a.width;
  parallel_for(a.batch * a.heads * blocks, SmallestWork / std::max<Index>(work, 1),
               [&](Index begin, Index end) {
                 for (Index task = begin; task < end; ++task) {
                   const Index batch = task / blocks / a.heads;
                   const Block b = make_block(a, ranges[static_cast<std::size_t>(batch)], batch,
                                              task / blocks % a.heads, task % blocks);
                   forward_block<T>(a, b, q, k, v, y, lse);
                 }
               });
}

template <class T>
void attention_backward(const Attention& a, std::span<const T> dy, std::span<const T> q,
                        std::span<const T> k, std::span<const T> v, std::span<const double> lse,
                        std::span<T> dq, std::span<T> dk, std::span<T> dv) {
  check("attention backward", a, q.size(), k.size(), lse.size());
  const std::vector<KeyRange> ranges = key_ranges(a);
  const Index rows = block_rows(a);
  const Index blocks = (a.queries + rows - 1) / rows;
  const Index group = a.heads / a.kv_heads;
  const Index work = 5 * group * a.queries * a.keys * a.width;
  const auto head = [&](Index batch, Index kv_head) {
    const KeyRange& range = ranges[static_cast<std::size_t>(batch)];
    // The last block sees every key that any block sees, so it comes first and assigns the sums.
    Index seen_from = a.capacity;
    Index seen_to = 0;
    for (Index h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (Index i = blocks - 1; i >= 0; --i) {
        const Block b = make_block(a, range, batch, h, i);
        if (b.strip.width == 0) {
          if (!dq.empty()) Operands<T>{a}.zero_queries(b, dq);
          continue;
        }
        const bool first = seen_to == 0;
        seen_from = b.first_key;
        seen_to = std::max(seen_to, b.first_key + b.strip.width);
        backward_block<T>(a, b, first, dy, q, k, v, lse, {dq, dk, dv});
      }
    }
    zero_outside(a, batch, kv_head, seen_from, seen_to, dk);
    zero_outside(a, batch, kv_head, seen_from, seen_to, dv);
  };
  parallel_for(a.batch * a.kv_heads, SmallestWork / std::max<Index>(work, 1),
               [&](Index begin, Index end) {
                 for (Index task = begin; task < end; ++task)
                   head(task / a.kv_heads, task % a.kv_heads);
               });
}

template void attention_forward(const Attention&, std::span<const float>, std::span<const float>,
                                std::span<const float>, std::span<float>, std::span<double>);
template void attention_forward(const Attention&, std::span<const double>, std::span<const double>,
                                std::span<const double>, std::span<double>, std::span<double>);
template void attention_backward(const Attention&, std::span<const float>, std::span<const float>,
                                 std::span<const float>, std::span<const float>,
                                 std::span<const double>, std::span<float>, std::span<float>,
                                 std::span<float>);
template void attention_backward(const Attention&, std::span<const double>, std::span<const double>,
                                 std::span<const double>, std::span<const double>,
                                 std::span<const double>, std::span<double>, std::span<double>,
                                 std::span<double>);

}  // namespace steady::kernels
