#include <algorithm>
#include <memory>
#include <steadygrad/core/kernels/onednn.hpp>
#include <steadygrad/core/kernels/prepared_product.hpp>
#include <steadygrad/core/kernels/scratch.hpp>
#include <steadygrad/core/parallel.hpp>
#include <vector>

namespace steady::kernels {
namespace {

using Index = std::int64_t;

/// Whether a product is faster with its right operand packed once for all rows than packed again
/// for every tile: where packing has to transpose, with many rows.
[[nodiscard]] bool packing_pays(const GemmShape& s) {
  return !s.transpose_a && s.transpose_b && std::min(s.n, s.k) >= 64 &&
         s.m >= (s.k >= 384 ? 128 : 512);
}

/// C = A op(B), plus `bias` unless it is null, by the kernels of oneDNN that take a packed right
/// operand, a panel of columns after the other; false, with nothing done, where there are none.
bool packed_product(GemmShape s, const float* a, const float* b, const float* bias, float* c) {
  struct Packed;
  constexpr Index PackedSize = Index{1} << 20;  // elements of a panel
  constexpr Index Step = 64;                    // columns that oneDNN packs together
  if (!packing_pays(s)) return false;
  const Index columns = s.n;
  const Index panels = (columns * s.k + PackedSize - 1) / PackedSize;
  const Index width = (columns + panels * Step - 1) / (panels * Step) * Step;
  std::vector<std::shared_ptr<const OnednnProduct>> parts;
  for (Index first = 0; first < columns; first += width) {
    s.n = std::min(width, columns - first);
    parts.push_back(OnednnProduct::find(s, bias != nullptr));
    if (!parts.back()) return false;
  }
  Index first = 0;
  for (const auto& part : parts) {
    float* packed = thread_scratch<Packed>().take<float>(part->packed_size()).data();
    part->pack(b + first * (s.transpose_b ? s.ldb : 1), packed);
    const float* added = bias == nullptr ? nullptr : bias + first;
    parallel_for(OnednnProduct::blocks(s.m), 1, [&](Index begin, Index end) {
      for (Index block = begin; block < end; ++block)
        part->run(s.m, block, a, packed, added, c + first);
    });
    first += width;
  }
  return true;
}

/// A leading dimension for rows of so many elements, an odd number of cache lines: the same column
/// of many rows then lies in many sets of a cache.
[[nodiscard]] Index apart(Index columns) { return 16 * ((columns + 15) / 16 | 1); }

/// Copies op(X), rows x columns, to rows that begin apart().
void copy_apart(Index rows, Index columns, bool transposed, const float* x, Index ldx, float* to) {
  const Index ld = apart(columns);
  parallel_for(rows, 64, [&](Index begin, Index end) {
    if (transposed) {
      transpose(columns, end - begin, x + begin, ldx, to + begin * ld, ld);
    } else {
      for (Index r = begin; r < end; ++r) std::copy_n(x + r * ldx, columns, to + r * ld);
    }
  });
}

/// `extent` in so many parts of the same size, but for the last.
[[nodiscard]] Index part_of(Index extent, Index parts) {
  constexpr Index Step = 16;
  return ((extent + parts - 1) / parts + Step - 1) / Step * Step;
}

/// How much of k is copied and multiplied at once: where both operands are copied, as much as
/// caches keep in between, unless C is so large that adding to it several times costs more.
[[nodiscard]] Index depth(const GemmShape& s) {
  constexpr Index Most = 512;
  constexpr Index SmallC = Index{1} << 16;  // elements
  return s.transpose_a && s.m * s.n <= SmallC ? part_of(s.k, (s.k + Most - 1) / Most) : s.k;
}

/// Whether oneDNN's AVX2 kernels, on copies of the operands that lie as these kernels read them
/// best, are faster with the copying than either library without: B in order, its rows apart, and A
/// in order. Many rows pay for the copy of B, many columns for that of A.
[[nodiscard]] bool copying_pays(const GemmShape& s) {
  constexpr Index LeastWork = Index{1} << 22;   // multiply-adds
  constexpr Index MostCopied = Index{1} << 22;  // elements of one operand
  const bool b_pays = s.m >= 128 && depth(s) * s.n <= MostCopied;
  const bool a_pays = (s.n >= 256 || s.n >= s.m) && s.m * depth(s) <= MostCopied;
  return onednn_is_avx2() && b_pays && (a_pays || !s.transpose_a) && s.n >= 64 && s.k >= 32 &&
         s.m * s.n * s.k >= LeastWork;
}

/// C = alpha * op(A) op(B) + beta * C on such copies, or plus `bias` for every row unless that is
/// null.
void multiply_copies(const GemmShape& s, float alpha, const float* a, const float* b, float beta,
                     const float* bias, float* c) {
  struct CopiedA;
  struct CopiedB;
  constexpr Index PanelColumns = 512, BlockRows = 384, LeastTasks = 8;
  const Index width = part_of(s.n, (s.n + PanelColumns - 1) / PanelColumns);
  const Index panels = (s.n + width - 1) / width;
  const Index rows =
      part_of(s.m, std::max((LeastTasks + panels - 1) / panels, (s.m + BlockRows - 1) / BlockRows));

  GemmShape tile{.k = s.k, .lda = s.lda, .ldc = s.ldc};
  if (s.transpose_a) {
    tile.lda = apart(s.k);
    float* const copy = thread_scratch<CopiedA>().take<float>(s.m * tile.lda).data();
    copy_apart(s.m, s.k, true, a, s.lda, copy);
    a = copy;
  }
  const Index panel_size = s.k * apart(width);
  float* const copies = thread_scratch<CopiedB>().take<float>(panels * panel_size).data();
  for (Index p = 0; p < panels; ++p) {
    const Index first = p * width;
    copy_apart(s.k, std::min(width, s.n - first), s.transpose_b,
               b + first * (s.transpose_b ? s.ldb : 1), s.ldb, copies + p * panel_size);
  }
  parallel_for((s.m + rows - 1) / rows * panels, 1, [&](Index task, Index) {
    const Index row = task / panels * rows, panel = task % panels, column = panel * width;
    GemmShape t = tile;
    t.m = std::min(rows, s.m - row);
    t.n = std::min(width, s.n - column);
    t.ldb = apart(t.n);
    float* const target = c + row * s.ldc + column;
    for (Index r = 0; bias != nullptr && r < t.m; ++r)
      std::copy_n(bias + column, t.n, target + r * s.ldc);
    onednn_sgemm(t, alpha, a + row * t.lda, copies + panel * panel_size,
                 bias == nullptr ? beta : 1.0F, target);
  });
}

/// The same; false, with nothing done, where that does not pay.
bool copied_product(const GemmShape& s, float alpha, const float* a, const float* b, float beta,
                    const float* bias, float* c) {
  if (!copying_pays(s)) return false;
  const Index step = depth(s);
  for (Index k = 0; k < s.k; k += step) {
    GemmShape part = s;
    part.k = std::min(step, s.k - k);
    multiply_copies(part, alpha, a + (s.transpose_a ? k * s.lda : k),
                    b + (s.transpose_b ? k : k * s.ldb), k == 0 ? beta : 1.0F,
                    k == 0 ? bias : nullptr, c);
  }
  return true;
}

/// C = alpha * A^T B as the transpose of B^T A on copies; false, with nothing done, where that does
/// not pay: C is then one with few columns.
bool turned_product(const GemmShape& s, float alpha, const float* a, const float* b, float* c) {
  struct Turned;
  constexpr Index BlockRows = 64;
  const GemmShape t{.m = s.n,
                    .n = s.m,
                    .k = s.k,
                    .transpose_a = true,
                    .lda = s.ldb,
                    .ldb = s.lda,
                    .ldc = apart(s.m)};
  if (!s.transpose_a || s.transpose_b || !copying_pays(t)) return false;
  float* const y = thread_scratch<Turned>().take<float>(t.m * t.ldc).data();
  copied_product(t, alpha, b, a, 0, nullptr, y);
  parallel_for(s.m, BlockRows, [&](Index begin, Index end) {
    transpose(t.m, end - begin, y + begin, t.ldc, c + begin * s.ldc, s.ldc);
  });
  return true;
}

}  // namespace

bool prepared_product(const GemmShape& s, float alpha, const float* a, const float* b, float beta,
                      const float* bias, float* c) {
  return copied_product(s, alpha, a, b, beta, bias, c) ||
         (beta == 0 && bias == nullptr && turned_product(s, alpha, a, b, c)) ||
         (alpha == 1 && beta == 0 && packed_product(s, a, b, bias, c));
}

}  // namespace steady::kernels
