#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/convolution.hpp>
#include <steadygrad/core/kernels/convolution_panels.hpp>
#include <steadygrad/core/kernels/onednn.hpp>
#include <steadygrad/core/kernels/scratch.hpp>
#include <steadygrad/core/kernels/shaping.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady::kernels {
namespace {

using Index = std::int64_t;

std::atomic<bool> library_enabled{true};

[[nodiscard]] bool fits(std::initializer_list<Index> extents) {
  Index product = 1;
  for (const Index extent : extents)
    if (extent != 0 && __builtin_mul_overflow(product, extent, &product)) return false;
  return product <= std::numeric_limits<Index>::max() / 8;
}

constexpr const char* TooLarge =
    "conv2d: number of elements does not fit 64 bits; got [{}, {}, {}, {}] and {} output channels";

void check_size(const char* name, std::size_t got, Index want) {
  STEADY_CHECK(ShapeError, got == static_cast<std::size_t>(want),
               "conv2d: {} must have {} elements; got {}", name, want, got);
}

template <class T>
void check_bias(const Conv2dGeometry& g, std::span<const T> bias, const char* name) {
  if (!bias.empty()) check_size(name, bias.size(), g.out_channels);
}

struct PackScratch;
struct PartialScratch;

/// The oneDNN convolutions of one call: whole chunks of images, and what is left over.
class Chunks {
 public:
  Chunks(ConvolutionPass pass, const Conv2dGeometry& g, bool with_bias)
      : chunk_(conv2d_chunk(g.batch)), whole_(g.batch / chunk_), rest_(g.batch % chunk_) {
    if (!library_convolution() || g.batch == 0) return;
    Conv2dGeometry part = g;
    part.batch = chunk_;
    whole_plan_ = OnednnConvolution::find(pass, part, with_bias);
    part.batch = rest_;
    if (rest_ > 0) rest_plan_ = OnednnConvolution::find(pass, part, with_bias);
  }

  [[nodiscard]] bool usable() const { return whole_plan_ && (rest_ == 0 || rest_plan_); }
  [[nodiscard]] Index whole() const { return whole_; }
  [[nodiscard]] const OnednnConvolution& whole_plan() const { return *whole_plan_; }
  /// Null when the chunks divide the batch.
  [[nodiscard]] const OnednnConvolution* rest_plan() const { return rest_plan_.get(); }
  [[nodiscard]] Index total() const { return whole_ + (rest_ > 0 ? 1 : 0); }
  [[nodiscard]] Index chunk() const { return chunk_; }

 private:
  Index chunk_, whole_, rest_;
  std::shared_ptr<const OnednnConvolution> whole_plan_, rest_plan_;
};

struct FlipScratch;

/// The convolution whose forward is the input gradient of `g`, and whose input gradient is its
/// forward: input and output channels exchanged, the kernel turned by half a circle. Nothing where
/// there is none, and for so few pixels that turning the kernel would take longer.
[[nodiscard]] std::optional<Conv2dGeometry> turned(const Conv2dGeometry& g) {
  constexpr std::array<Index, 2> One{1, 1};
  constexpr Index FewestPixels = 1024;
  const std::array<Index, 2> padding{g.kernel[0] - 1 - g.padding[0],
                                     g.kernel[1] - 1 - g.padding[1]};
  if (g.groups != 1 || g.stride != One || g.dilation != One ||
      std::min(padding[0], padding[1]) < 0 || g.batch * g.height * g.width < FewestPixels)
    return std::nullopt;
  return Conv2dGeometry{.batch = g.batch,
                        .height = g.out_height(),
                        .width = g.out_width(),
                        .in_channels = g.out_channels,
                        .out_channels = g.in_channels,
                        .kernel = g.kernel,
                        .padding = padding};
}

/// The convolutions to run, of what geometry, and whether they take the turned weight.
struct Way {
  Conv2dGeometry geometry;
  bool turned;
  Chunks chunks;
};

/// How to run Forward or BackwardInput of `g`: as the other pass of the turned convolution where
/// oneDNN has a better kernel for that. With AVX-512 its forward kernels are the better ones, with
/// AVX2 those of the input gradient, which add no bias.
[[nodiscard]] Way way(ConvolutionPass pass, const Conv2dGeometry& g, bool with_bias) {
  const bool forward = pass == ConvolutionPass::Forward;
  const bool pays = !forward || (onednn_is_avx2() && !with_bias && g.kernel[0] * g.kernel[1] > 1);
  if (const auto other = pays ? turned(g) : std::nullopt) {
    const Chunks chunks(forward ? ConvolutionPass::BackwardInput : ConvolutionPass::Forward, *other,
                        false);
    if (chunks.usable() && (forward || chunks.whole_plan().blocked()))
      return {*other, true, chunks};
  }
  return {g, false, Chunks(pass, g, with_bias)};
}

/// [K, C, kh, kw] to [C, K, kh, kw], the kernel turned by half a circle.
[[nodiscard]] std::span<const float> turned(const Conv2dGeometry& g,
                                            std::span<const float> weight) {
  const Index taps = g.kernel[0] * g.kernel[1];
  const std::span<float> w = thread_scratch<FlipScratch>().take<float>(std::ssize(weight));
  for (Index k = 0; k < g.out_channels; ++k)
    for (Index c = 0; c < g.in_channels; ++c)
      std::reverse_copy(weight.begin() + (k * g.in_channels + c) * taps,
                        weight.begin() + (k * g.in_channels + c + 1) * taps,
                        w.begin() + (c * g.out_channels + k) * taps);
  return w;
}

/// Elements to the next multiple of a cache line.
[[nodiscard]] Index rounded(Index elements) { return (elements + 15) / 16 * 16; }

/// Runs Forward or BackwardInput over the chunks; false when oneDNN does not serve.
bool run_chunks(ConvolutionPass pass, const Conv2dGeometry& geometry, std::span<const float> image,
                std::span<const float> weight, std::span<const float> bias,
                std::span<float> result) {
  const Way chosen = way(pass, geometry, !bias.empty());
  const Conv2dGeometry& g = chosen.geometry;
  const Chunks& chunks = chosen.chunks;
  if (!chunks.usable()) return false;
  if (chosen.turned) weight = turned(geometry, weight);
  const OnednnConvolution& plan = chunks.whole_plan();
  const OnednnConvolution* rest = chunks.rest_plan();
  const Index size = rounded(plan.packed_size());
  float* packed = thread_scratch<PackScratch>()
                      .take<float>(size + (rest != nullptr ? rest->packed_size() : 0))
                      .data();
  plan.pack(weight.data(), packed);
  if (rest != nullptr) rest->pack(weight.data(), packed + size);
  const Index image_size = static_cast<Index>(image.size()) / g.batch;
  const Index result_size = static_cast<Index>(result.size()) / g.batch;
  parallel_for(chunks.total(), 1, [&](Index i, Index) {
    const bool whole = i < chunks.whole();
    const Index n = i * chunks.chunk();
    (whole ? plan : *rest)
        .run(image.data() + n * image_size, whole ? packed : packed + size,
             bias.empty() ? nullptr : bias.data(), result.data() + n * result_size);
  });
  return true;
}

/// sums[k] = sum over the rows of dy: lines of `block` rows are summed apart and then added, which
/// keeps float32 sums short. Four rows at a time, for speed.
void column_sums(const float* dy, Index rows, Index block, Index columns, float* line,
                 float* sums) {
  std::fill_n(sums, columns, 0.0F);
  for (Index begin = 0; begin < rows; begin += block) {
    std::fill_n(line, columns, 0.0F);
    Index r = begin;
    for (; r + 4 <= begin + block; r += 4) {
      const float* row = dy + r * columns;
#pragma omp simd
      for (Index k = 0; k < columns; ++k)
        line[k] += (row[k] + row[columns + k]) + (row[2 * columns + k] + row[3 * columns + k]);
    }
    for (; r < begin + block; ++r) {
#pragma omp simd
      for (Index k = 0; k < columns; ++k) line[k] += dy[r * columns + k];
    }
    for (Index k = 0; k < columns; ++k) sums[k] += line[k];
  }
}

/// target[i] = sum over chunks of partial[chunk * stride + i], added in chunk order.
void merge(const float* partial, Index chunks, Index stride, Index size, float* target) {
  parallel_for(size, 16384, [&](Index begin, Index end) {
    std::copy(partial + begin, partial + end, target + begin);
    for (Index c = 1; c < chunks; ++c)
      for (Index i = begin; i < end; ++i) target[i] += partial[c * stride + i];
  });
}

/// Partial gradients, one per chunk of images, and room for their sum: of the weight in the order
/// of the kernel that made it, of the bias, and a line to sum that in.
class Partials {
 public:
  Partials(const Conv2dGeometry& g, Index weight_size)
      : chunk_(conv2d_chunk(g.batch)),
        chunks_((g.batch + chunk_ - 1) / chunk_),
        channels_(rounded(g.out_channels)),
        size_(rounded(weight_size)),
        memory_(thread_scratch<PartialScratch>().take<float>((chunks_ + 1) * stride()).data()) {}

  /// run(chunk, images, x, dy, weight gradient) for every chunk, and its bias gradient where asked.
  template <class Run>
  void find(const Conv2dGeometry& g, const float* x, const float* dy, bool with_bias,
            Run&& run) const {
    const Index x_image = g.x_size() / g.batch;
    const Index y_image = g.y_size() / g.batch;
    parallel_for(chunks_, 1, [&](Index i, Index) {
      const Index n = i * chunk_;
      const Index images = std::min(chunk_, g.batch - n);
      const float* dy_chunk = dy + n * y_image;
      run(i, images, x + n * x_image, dy_chunk, weight(i));
      if (!with_bias) return;
      column_sums(dy_chunk, images * y_image / g.out_channels, g.out_width(), g.out_channels,
                  bias(i) + channels_, bias(i));
    });
  }

  [[nodiscard]] float* weight(Index chunk) const { return memory_ + chunk * stride(); }
  /// The sum over the first `chunks` chunks, of `elements` elements.
  [[nodiscard]] float* merged_weight(Index chunks, Index elements) const {
    merge(weight(0), chunks, stride(), elements, weight(chunks_));
    return weight(chunks_);
  }
  [[nodiscard]] float* merged_weight(Index elements) const {
    return merged_weight(chunks_, elements);
  }
  void merge_bias(std::span<float> dbias) const {
    if (!dbias.empty()) merge(bias(0), chunks_, stride(), std::ssize(dbias), dbias.data());
  }

 private:
  [[nodiscard]] Index stride() const { return size_ + 2 * channels_; }
  [[nodiscard]] float* bias(Index chunk) const { return weight(chunk) + size_; }

  Index chunk_, chunks_, channels_, size_;
  float* memory_;
};

struct PanelScratch;

/// Whether the weight gradient of `g` comes from panels.
[[nodiscard]] bool by_panels(const Conv2dGeometry& g) {
  return library_convolution() && g.batch > 0 && weight_panels_serve(g);
}

bool panel_gradient(const Conv2dGeometry& g, std::span<const float> x, std::span<const float> dy,
                    std::span<float> dweight, std::span<float> dbias) {
  if (!by_panels(g)) return false;
  const Partials partials(g, g.weight_size());
  const Index workspace = weight_panels_workspace(g);
  partials.find(g, x.data(), dy.data(), !dbias.empty(),
                [&](Index, Index images, const float* x_chunk, const float* dy_chunk, float* dw) {
                  weight_panels(g, images, x_chunk, dy_chunk, dw,
                                thread_scratch<PanelScratch>().take<float>(workspace).data());
                });
  // [kh, kw, C, K] to [K, C, kh, kw].
  const std::array<Index, 3> extents{g.kernel[0] * g.kernel[1], g.in_channels, g.out_channels};
  const std::array<int, 3> axes{2, 1, 0};
  permute<float>({partials.merged_weight(g.weight_size()), dweight.size()}, extents, axes, dweight);
  partials.merge_bias(dbias);
  return true;
}

bool library_gradient(const Conv2dGeometry& g, std::span<const float> x, std::span<const float> dy,
                      std::span<float> dweight, std::span<float> dbias) {
  const Chunks chunks(ConvolutionPass::BackwardWeight, g, false);
  if (!chunks.usable()) return false;
  const OnednnConvolution& plan = chunks.whole_plan();
  const OnednnConvolution* rest = chunks.rest_plan();
  // The rest may be packed differently from the whole chunks: it is unpacked first and added last.
  const Index whole = chunks.whole();
  const Partials partials(g,
                          std::max({plan.packed_size(), rest != nullptr ? rest->packed_size() : 0,
                                    rest != nullptr ? g.weight_size() : 0}));
  partials.find(g, x.data(), dy.data(), !dbias.empty(),
                [&](Index i, Index, const float* x_chunk, const float* dy_chunk, float* dw) {
                  (i < whole ? plan : *rest).run_weight(x_chunk, dy_chunk, dw);
                });
  float* merged = partials.merged_weight(whole, plan.packed_size());
  plan.unpack(merged, dweight.data());
  if (rest != nullptr) {
    rest->unpack(partials.weight(whole), merged);
    for (std::size_t i = 0; i < dweight.size(); ++i) dweight[i] += merged[i];
  }
  partials.merge_bias(dbias);
  return true;
}

}  // namespace

void Conv2dGeometry::check() const {
  STEADY_CHECK(
      ShapeError, batch >= 0 && height >= 1 && width >= 1 && in_channels >= 1 && out_channels >= 1,
      "conv2d: needs an image [N, H, W, C] and output channels; got [{}, {}, {}, {}] and {}", batch,
      height, width, in_channels, out_channels);
  STEADY_CHECK(ShapeError, groups >= 1 && in_channels % groups == 0 && out_channels % groups == 0,
               "conv2d: channels must be divisible by groups; got {} in, {} out, groups {}",
               in_channels, out_channels, groups);
  STEADY_CHECK(ShapeError, fits({batch, height, width, in_channels}), TooLarge, batch, height,
               width, in_channels, out_channels);
  constexpr Index Limit = std::numeric_limits<std::int32_t>::max();
  for (std::size_t axis = 0; axis < 2; ++axis) {
    STEADY_CHECK(ShapeError,
                 std::min({kernel[axis], stride[axis], dilation[axis]}) >= 1 &&
                     padding[axis] >= 0 &&
                     std::max({kernel[axis], stride[axis], dilation[axis], padding[axis]}) < Limit,
                 "conv2d: kernel, stride and dilation must be at least 1, padding at least 0, all "
                 "below 2^31; got kernel {}, stride {}, dilation {}, padding {}",
                 kernel[axis], stride[axis], dilation[axis], padding[axis]);
    STEADY_CHECK(ShapeError, out_extent(axis, axis == 0 ? height : width) >= 1,
                 "conv2d: kernel is larger than the padded image; got image {}, kernel {}, "
                 "dilation {}, padding {}",
                 axis == 0 ? height : width, kernel[axis], dilation[axis], padding[axis]);
  }
  STEADY_CHECK(ShapeError,
               fits({batch, out_height(), out_width(), out_channels}) &&
                   fits({out_channels, in_channels, kernel[0], kernel[1]}),
               TooLarge, batch, height, width, in_channels, out_channels);
}

template <std::floating_point T>
void conv2d_forward(const Conv2dGeometry& geometry, std::span<const T> x, std::span<const T> weight,
                    std::span<const T> bias, std::span<T> y) {
  geometry.check();
  check_size("x", x.size(), geometry.x_size());
  check_size("weight", weight.size(), geometry.weight_size());
  check_bias<T>(geometry, bias, "bias");
  check_size("y", y.size(), geometry.y_size());
  if constexpr (std::same_as<T, float>)
    if (run_chunks(ConvolutionPass::Forward, geometry, x, weight, bias, y)) return;
  conv2d_forward_reference(geometry, x, weight, bias, y);
}

template <std::floating_point T>
void conv2d_backward_input(const Conv2dGeometry& geometry, std::span<const T> dy,
                           std::span<const T> weight, std::span<T> dx) {
  geometry.check();
  check_size("dy", dy.size(), geometry.y_size());
  check_size("weight", weight.size(), geometry.weight_size());
  check_size("dx", dx.size(), geometry.x_size());
  if constexpr (std::same_as<T, float>)
    if (run_chunks(ConvolutionPass::BackwardInput, geometry, dy, weight, {}, dx)) return;
  conv2d_backward_input_reference(geometry, dy, weight, dx);
}

template <std::floating_point T>
void conv2d_backward_weight(const Conv2dGeometry& geometry, std::span<const T> x,
                            std::span<const T> dy, std::span<T> dweight, std::span<T> dbias) {
  geometry.check();
  check_size("x", x.size(), geometry.x_size());
  check_size("dy", dy.size(), geometry.y_size());
  check_size("dweight", dweight.size(), geometry.weight_size());
  check_bias<T>(geometry, dbias, "dbias");
  if constexpr (std::same_as<T, float>)
    if (panel_gradient(geometry, x, dy, dweight, dbias) ||
        library_gradient(geometry, x, dy, dweight, dbias))
      return;
  conv2d_backward_weight_reference(geometry, x, dy, dweight, dbias);
}

template void conv2d_forward<float>(const Conv2dGeometry&, std::span<const float>,
                                    std::span<const float>, std::span<const float>,
                                    std::span<float>);
template void conv2d_forward<double>(const Conv2dGeometry&, std::span<const double>,
                                     std::span<const double>, std::span<const double>,
                                     std::span<double>);
template void conv2d_backward_input<float>(const Conv2dGeometry&, std::span<const float>,
                                           std::span<const float>, std::span<float>);
template void conv2d_backward_input<double>(const Conv2dGeometry&, std::span<const double>,
                                            std::span<const double>, std::span<double>);
template void conv2d_backward_weight<float>(const Conv2dGeometry&, std::span<const float>,
                                            std::span<const float>, std::span<float>,
                                            std::span<float>);
template void conv2d_backward_weight<double>(const Conv2dGeometry&, std::span<const double>,
                                             std::span<const double>, std::span<double>,
                                             std::span<double>);

std::string_view conv2d_implementation(ConvolutionPass pass, const Conv2dGeometry& geometry,
                                       bool with_bias) {
  geometry.check();
  const bool weight = pass == ConvolutionPass::BackwardWeight;
  if (weight && by_panels(geometry)) return "panels";
  const Chunks chunks =
      weight ? Chunks(pass, geometry, with_bias) : way(pass, geometry, with_bias).chunks;
  return chunks.usable() ? chunks.whole_plan().implementation() : "reference";
}

bool set_library_convolution(bool enabled) { return library_enabled.exchange(enabled); }
bool library_convolution() { return library_enabled.load(std::memory_order_relaxed); }

}  // namespace steady::kernels
