#pragma once

#include <cstdint>
#include <memory>
#include <steadygrad/core/kernels/convolution.hpp>
#include <steadygrad/core/kernels/gemm.hpp>
#include <string>

/// The library side of convolution and matrix product; onednn.cpp is the only file that sees
/// oneDNN. Everything here runs on the calling thread alone, whatever the OpenMP settings are.
namespace steady::kernels {

/// C = alpha * op(A) * op(B) + beta * C, all leading dimensions given, sizes > 0.
void onednn_sgemm(const GemmShape& shape, float alpha, const float* a, const float* b, float beta,
                  float* c);

/// "oneDNN 2.6.3".
[[nodiscard]] std::string onednn_name();

/// Whether oneDNN's best kernels here are those for AVX2.
[[nodiscard]] bool onednn_is_avx2();

/// Whether oneDNN is the faster of the two libraries for one tile of this shape.
[[nodiscard]] bool onednn_prefers_sgemm(const GemmShape& shape);

/// A float32 product C = A op(B), or C = A op(B) + bias for every row, whose right operand is
/// brought into oneDNN's layout once, for all blocks of rows of A. Immutable, so that any number of
/// threads may run it at once.
class OnednnProduct {
 public:
  /// The product for this shape, cut into blocks of rows, made once and kept; products of another m
  /// share it when their blocks, and what is left over, have the same size. All leading
  /// dimensions given, sizes > 0, A not transposed. Null where oneDNN has only the kernels that
  /// onednn_sgemm() reaches too (below AVX-512).
  [[nodiscard]] static std::shared_ptr<const OnednnProduct> find(const GemmShape& shape,
                                                                 bool with_bias);

  /// Blocks of rows of a product of m; their size depends on m alone.
  [[nodiscard]] static std::int64_t blocks(std::int64_t m);
  /// Elements of B in oneDNN's layout, its padding included.
  [[nodiscard]] std::int64_t packed_size() const;
  void pack(const float* b, float* packed) const;
  /// One block of a product of m rows; `a` and `c` are the whole matrices, `bias` [n] is as asked
  /// for in find().
  void run(std::int64_t m, std::int64_t block, const float* a, const float* packed,
           const float* bias, float* c) const;

  struct Parts;
  explicit OnednnProduct(std::unique_ptr<const Parts> parts);
  ~OnednnProduct();

 private:
  std::unique_ptr<const Parts> parts_;
};

/// One prepared oneDNN convolution: features last for the images, whatever layout oneDNN likes for
/// the weight. Immutable, so that any number of threads may run it at once.
class OnednnConvolution {
 public:
  /// The convolution for exactly this geometry (its batch included), made once and kept. Null when
  /// oneDNN has no primitive for it, or only its slow reference code.
  [[nodiscard]] static std::shared_ptr<const OnednnConvolution> find(ConvolutionPass pass,
                                                                     const Conv2dGeometry& geometry,
                                                                     bool with_bias);

  /// Elements of the weight in oneDNN's layout, its padding included.
  [[nodiscard]] std::int64_t packed_size() const;
  /// [K, C / groups, kh, kw] to oneDNN's layout and back.
  void pack(const float* weight, float* packed) const;
  void unpack(const float* packed, float* weight) const;

  /// Forward: image = x, bias as asked for in find(), result = y.
  /// BackwardInput: image = dy, result = dx.
  void run(const float* image, const float* packed, const float* bias, float* result) const;
  /// BackwardWeight: assigns the packed gradient.
  void run_weight(const float* x, const float* dy, float* packed) const;

  /// What is behind it, for tests and traces.
  [[nodiscard]] const char* implementation() const;
  /// Whether that is one of the blocked kernels that oneDNN has from AVX-512 on.
  [[nodiscard]] bool blocked() const;

  struct Parts;
  explicit OnednnConvolution(std::unique_ptr<const Parts> parts);
  ~OnednnConvolution();

 private:
  std::unique_ptr<const Parts> parts_;
};

}  // namespace steady::kernels
