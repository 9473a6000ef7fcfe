#include <steadygrad/core/kernels/attention.hpp>

#include <algorithm>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/attention_block.hpp>
#include <steadygrad/core/kernels/scratch.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady::kernels {
namespace {

using Index = std::int64_t;

/// Multiply-adds that are worth a task of their own: about 10 microseconds.
constexpr Index SmallestWork = Index{1} << 20;

struct StripScratch;
struct KeyScratch;
struct ValueScratch;

void check(const char* op, const Attention& a, std::size_t q, std::size_t k, std::size_t v,
           std::size_t y, std::size_t lse) {
  STEADY_CHECK(Error,
               a.kv_heads >= 1 && a.heads % a.kv_heads == 0 && 0 <= a.keys && a.keys <= a.capacity,
               "{}: needs heads a multiple of kv_heads and keys within the capacity; got {} and "
               "{}, {} of {}",
               op, a.heads, a.kv_heads, a.keys, a.capacity);
  const Index rows = a.batch * a.queries * a.heads;
  STEADY_CHECK(Error,
               static_cast<Index>(q) == rows * a.width && static_cast<Index>(lse) == rows &&
                   v == k && y == q &&
                   static_cast<Index>(k) == a.batch * a.capacity * a.kv_heads * a.width &&
                   (a.keep.empty() || std::ssize(a.keep) == a.batch * a.keys),
               "{}: buffers must fit batch {}, queries {}, capacity {}, heads {} and {}, width {}; "
               "got {} in q, {} in k, {} in v, {} in y, {} in lse, {} in keep",
               op, a.batch, a.queries, a.capacity, a.heads, a.kv_heads, a.width, q, k, v, y, lse,
               a.keep.size());
}

template <class T>
void zero_rows(Index rows, Index stride, Index width, T* x) {
  for (Index i = 0; i < rows; ++i) std::fill_n(x + i * stride, width, T{0});
}

/// Zeros in the rows of the block's queries.
template <class T>
void zero_queries(const Attention& a, const AttentionBlock& b, std::span<T> y) {
  const Index first = (b.batch * a.queries + b.first_query) * a.heads + b.head;
  zero_rows(b.strip.rows, a.heads * a.width, a.width, y.data() + first * a.width);
}

/// Zeros for the keys outside [first, last), where no query looks.
template <class T>
void zero_outside(const Attention& a, Index batch, Index kv_head, Index first, Index last,
                  std::span<T> y) {
  if (y.empty()) return;
  const Index stride = a.kv_heads * a.width;
  T* head = y.data() + batch * a.capacity * stride + kv_head * a.width;
  zero_rows(first, stride, a.width, head);
  zero_rows(a.capacity - last, stride, a.width, head + last * stride);
}

template <class T>
void forward_block(const Attention& a, const AttentionBlock& b, std::span<const T> q,
                   const HeadKeys<T>& k, std::span<const T> v, std::span<T> y,
                   std::span<double> lse) {
  const BlockProducts<T> products(a, b);
  if (b.strip.width == 0) {
    zero_queries(a, b, y);
    std::fill_n(lse.data() + products.row(), b.strip.rows,
                -std::numeric_limits<double>::infinity());
    return;
  }
  const bool drops = a.dropout.threshold != 0;
  const Index size = b.strip.rows * b.strip.stride;
  const auto scratch =
      thread_scratch<StripScratch>().take<T>(b.strip.rows + (drops ? 2 : 1) * size);
  const auto factor = scratch.first(static_cast<std::size_t>(b.strip.rows));
  const auto s = scratch.subspan(factor.size(), static_cast<std::size_t>(size));
  products.scores(static_cast<T>(a.scale), q, k, /*masked=*/true, s);
  softmax_strip(b.strip, s.data(), factor.data(), lse.data() + products.row());
  if (drops) {
    const auto keep = scratch.subspan(factor.size() + s.size());
    products.draw_dropout(keep);
    multiply_strip(b.strip, keep.data(), s.data());
  }
  products.to_queries(s, v, y);
  products.scale_queries(factor, y);
}

/// What attention_backward writes; an empty span is not wanted.
template <class T>
struct Gradients {
  std::span<T> dq, dk, dv;
};

/// One block's part. `first`: the sums over the blocks of this key head begin here.
template <class T>
void backward_block(const Attention& a, const AttentionBlock& b, bool first, std::span<const T> dy,
                    std::span<const T> q, const HeadKeys<T>& k, const HeadKeys<T>& v,
                    std::span<const double> lse, const Gradients<T>& out) {
  const BlockProducts<T> products(a, b);
  const bool drops = a.dropout.threshold != 0;
  const auto size = static_cast<std::size_t>(b.strip.rows * b.strip.stride);
  const auto scratch =
      thread_scratch<StripScratch>().take<T>(static_cast<Index>((drops ? 3 : 2) * size));
  const auto s = scratch.first(size);
  const auto ds = scratch.subspan(size, size);
  const auto keep = scratch.subspan(2 * size);
  products.scores(static_cast<T>(a.scale), q, k, /*masked=*/true, s);
  products.scores(T{1}, dy, v, /*masked=*/false, ds);
  if (drops) products.draw_dropout(keep);
  softmax_strip_backward(b.strip, lse.data() + products.row(), static_cast<T>(a.scale),
                         drops ? keep.data() : nullptr, s.data(), ds.data());
  const T beta = first ? T{0} : T{1};
  if (!out.dv.empty()) products.to_keys(s, dy, beta, out.dv);
  if (!out.dq.empty()) products.to_queries(ds, k.rows, out.dq);
  if (!out.dk.empty()) products.to_keys(ds, q, beta, out.dk);
}

}  // namespace

template <class T>
void attention_forward(const Attention& a, std::span<const T> q, std::span<const T> k,
                       std::span<const T> v, std::span<T> y, std::span<double> lse) {
  check("attention", a, q.size(), k.size(), v.size(), y.size(), lse.size());
  const std::vector<KeyRange> ranges = key_ranges(a);
  const Index rows = attention_block_rows(a);
  const Index blocks = (a.queries + rows - 1) / rows;
  const Index work = 2 * std::min(rows, a.queries) * a.keys * a.width;
  // A few blocks of a head together: they share its transposed keys.
  const Index together =
      std::max(SmallestWork / std::max<Index>(work, 1), std::min<Index>(blocks, 4));
  parallel_for(a.batch * a.heads * blocks, together, [&](Index begin, Index end) {
    HeadKeys<T> keys;
    for (Index task = begin; task < end; ++task) {
      const Index batch = task / blocks / a.heads;
      const Index head = task / blocks % a.heads;
      const KeyRange& range = ranges[static_cast<std::size_t>(batch)];
      const AttentionBlock b = attention_block(a, range, batch, head, task % blocks);
      if (task == begin || task % blocks == 0)
        keys = head_keys(a, range, batch, b.kv_head, k, thread_scratch<KeyScratch>());
      forward_block<T>(a, b, q, keys, v, y, lse);
    }
  });
}

template <class T>
void attention_backward(const Attention& a, std::span<const T> dy, std::span<const T> q,
                        std::span<const T> k, std::span<const T> v, std::span<const double> lse,
                        std::span<T> dq, std::span<T> dk, std::span<T> dv) {
  check("attention backward", a, q.size(), k.size(), v.size(), dy.size(), lse.size());
  STEADY_CHECK(Error,
               (dq.empty() || dq.size() == q.size()) && (dk.empty() || dk.size() == k.size()) &&
                   (dv.empty() || dv.size() == v.size()),
               "attention backward: a gradient must be empty or have the size of its operand; got "
               "{}, {}, {} for {}, {}, {}",
               dq.size(), dk.size(), dv.size(), q.size(), k.size(), v.size());
  const std::vector<KeyRange> ranges = key_ranges(a);
  const Index rows = attention_block_rows(a);
  const Index blocks = (a.queries + rows - 1) / rows;
  const Index group = a.heads / a.kv_heads;
  const Index work = 5 * group * a.queries * a.keys * a.width;
  const auto head = [&](Index batch, Index kv_head) {
    const KeyRange& range = ranges[static_cast<std::size_t>(batch)];
    const auto keys = head_keys(a, range, batch, kv_head, k, thread_scratch<KeyScratch>());
    const auto values = head_keys(a, range, batch, kv_head, v, thread_scratch<ValueScratch>());
    // The last block sees every key that any block sees, so it comes first and assigns the sums.
    Index seen_from = a.capacity;
    Index seen_to = 0;
    for (Index h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (Index i = blocks - 1; i >= 0; --i) {
        const AttentionBlock b = attention_block(a, range, batch, h, i);
        if (b.strip.width == 0) {
          if (!dq.empty()) zero_queries(a, b, dq);
          continue;
        }
        const bool first = seen_to == 0;
        seen_from = b.first_key;
        seen_to = std::max(seen_to, b.first_key + b.strip.width);
        backward_block<T>(a, b, first, dy, q, keys, values, lse, {dq, dk, dv});
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
