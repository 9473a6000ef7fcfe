#include <algorithm>
#include <steadygrad/core/kernels/convolution.hpp>
#include <steadygrad/core/kernels/scratch.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady::kernels {
namespace {

using Index = std::int64_t;

struct WeightScratch;
struct PartialScratch;

/// Calls f(input offset, output offset, tap) for every pair of an output pixel and a kernel tap
/// that falls inside the image, in row-major order of the output.
template <class F>
void for_each_tap(const Conv2dGeometry& g, Index n, F&& f) {
  const Index out_height = g.out_height();
  const Index out_width = g.out_width();
  for (Index i = 0; i < out_height; ++i) {
    for (Index j = 0; j < out_width; ++j) {
      for (Index a = 0; a < g.kernel[0]; ++a) {
        const Index h = i * g.stride[0] + a * g.dilation[0] - g.padding[0];
        if (h < 0 || h >= g.height) continue;
        for (Index b = 0; b < g.kernel[1]; ++b) {
          const Index w = j * g.stride[1] + b * g.dilation[1] - g.padding[1];
          if (w < 0 || w >= g.width) continue;
          f(((n * g.height + h) * g.width + w) * g.in_channels,
            ((n * out_height + i) * out_width + j) * g.out_channels, a * g.kernel[1] + b);
        }
      }
    }
  }
}

/// Channel counts of one group.
struct GroupSizes {
  explicit GroupSizes(const Conv2dGeometry& g)
      : in(g.in_channels / g.groups), out(g.out_channels / g.groups) {}
  Index in, out;
};

/// y[0..count) += scale * x[0..count)
template <class T>
void add_scaled(Index count, T scale, const T* x, T* y) {
#pragma omp simd
  for (Index i = 0; i < count; ++i) y[i] += scale * x[i];
}

/// The weight as [kh * kw, C / groups, K]: rows over output channels.
template <class T>
[[nodiscard]] std::span<const T> rows_over_outputs(const Conv2dGeometry& g, const T* weight) {
  const Index taps = g.kernel[0] * g.kernel[1];
  const Index in = GroupSizes(g).in;
  const std::span<T> rows = thread_scratch<WeightScratch>().take<T>(g.weight_size());
  for (Index k = 0; k < g.out_channels; ++k)
    for (Index c = 0; c < in; ++c)
      for (Index t = 0; t < taps; ++t)
        rows[static_cast<std::size_t>((t * in + c) * g.out_channels + k)] =
            weight[(k * in + c) * taps + t];
  return rows;
}

/// The weight as [kh * kw, K, C / groups]: rows over input channels.
template <class T>
[[nodiscard]] std::span<const T> rows_over_inputs(const Conv2dGeometry& g, const T* weight) {
  const Index taps = g.kernel[0] * g.kernel[1];
  const Index in = GroupSizes(g).in;
  const std::span<T> rows = thread_scratch<WeightScratch>().take<T>(g.weight_size());
  for (Index k = 0; k < g.out_channels; ++k)
    for (Index c = 0; c < in; ++c)
      for (Index t = 0; t < taps; ++t)
        rows[static_cast<std::size_t>((t * g.out_channels + k) * in + c)] =
            weight[(k * in + c) * taps + t];
  return rows;
}

}  // namespace

template <std::floating_point T>
void conv2d_forward_reference(const Conv2dGeometry& geometry, std::span<const T> x,
                              std::span<const T> weight, std::span<const T> bias, std::span<T> y) {
  const Conv2dGeometry& g = geometry;
  const GroupSizes group(g);
  const T* rows = rows_over_outputs(g, weight.data()).data();
  const Index image = g.out_height() * g.out_width() * g.out_channels;
  parallel_for(g.batch, 1, [&](Index n, Index) {
    for (Index p = n * image; p < (n + 1) * image; p += g.out_channels) {
      if (bias.empty())
        std::fill_n(y.data() + p, g.out_channels, T{0});
      else
        std::copy_n(bias.data(), g.out_channels, y.data() + p);
    }
    for_each_tap(g, n, [&](Index in, Index out, Index tap) {
      for (Index c = 0; c < g.in_channels; ++c) {
        const Index first = c / group.in * group.out;
        const T* row = rows + (tap * group.in + c % group.in) * g.out_channels + first;
        add_scaled(group.out, x.data()[in + c], row, y.data() + out + first);
      }
    });
  });
}

template <std::floating_point T>
void conv2d_backward_input_reference(const Conv2dGeometry& geometry, std::span<const T> dy,
                                     std::span<const T> weight, std::span<T> dx) {
  const Conv2dGeometry& g = geometry;
  const GroupSizes group(g);
  const T* rows = rows_over_inputs(g, weight.data()).data();
  const Index image = g.height * g.width * g.in_channels;
  parallel_for(g.batch, 1, [&](Index n, Index) {
    std::fill_n(dx.data() + n * image, image, T{0});
    for_each_tap(g, n, [&](Index in, Index out, Index tap) {
      for (Index k = 0; k < g.out_channels; ++k) {
        const T* row = rows + (tap * g.out_channels + k) * group.in;
        add_scaled(group.in, dy.data()[out + k], row, dx.data() + in + k / group.out * group.in);
      }
    });
  });
}

template <std::floating_point T>
void conv2d_backward_weight_reference(const Conv2dGeometry& geometry, std::span<const T> x,
                                      std::span<const T> dy, std::span<T> dweight,
                                      std::span<T> dbias) {
  const Conv2dGeometry& g = geometry;
  const GroupSizes group(g);
  const Index taps = g.kernel[0] * g.kernel[1];
  const Index chunk = conv2d_chunk(g.batch);
  const Index chunks = (g.batch + chunk - 1) / chunk;
  const Index size = g.weight_size();
  const Index stride = size + g.out_channels;  // one partial: [kh * kw, C / groups, K], then dbias
  const std::span<T> partial = thread_scratch<PartialScratch>().take<T>(chunks * stride);
  std::fill(partial.begin(), partial.end(), T{0});
  const Index image = g.out_height() * g.out_width() * g.out_channels;
  parallel_for(g.batch, chunk, [&](Index begin, Index end) {
    T* dw = partial.data() + begin / chunk * stride;
    for (Index p = begin * image; p < end * image; p += g.out_channels)
      add_scaled(g.out_channels, T{1}, dy.data() + p, dw + size);
    for (Index n = begin; n < end; ++n) {
      for_each_tap(g, n, [&](Index in, Index out, Index tap) {
        for (Index c = 0; c < g.in_channels; ++c) {
          const Index first = c / group.in * group.out;
          add_scaled(group.out, x.data()[in + c], dy.data() + out + first,
                     dw + (tap * group.in + c % group.in) * g.out_channels + first);
        }
      });
    }
  });
  const auto merged = [&](Index offset) {
    T sum{0};
    for (Index i = 0; i < chunks; ++i)
      sum += partial[static_cast<std::size_t>(i * stride + offset)];
    return sum;
  };
  for (Index e = 0; e < size; ++e) {
    const Index row = e / taps;  // k * (C / groups) + c
    dweight[static_cast<std::size_t>(e)] =
        merged((e % taps * group.in + row % group.in) * g.out_channels + row / group.in);
  }
  for (Index k = 0; k < static_cast<Index>(dbias.size()); ++k)
    dbias[static_cast<std::size_t>(k)] = merged(size + k);
}

template void conv2d_forward_reference<float>(const Conv2dGeometry&, std::span<const float>,
                                              std::span<const float>, std::span<const float>,
                                              std::span<float>);
template void conv2d_forward_reference<double>(const Conv2dGeometry&, std::span<const double>,
                                               std::span<const double>, std::span<const double>,
                                               std::span<double>);
template void conv2d_backward_input_reference<float>(const Conv2dGeometry&, std::span<const float>,
                                                     std::span<const float>, std::span<float>);
template void conv2d_backward_input_reference<double>(const Conv2dGeometry&,
                                                      std::span<const double>,
                                                      std::span<const double>, std::span<double>);
template void conv2d_backward_weight_reference<float>(const Conv2dGeometry&, std::span<const float>,
                                                      std::span<const float>, std::span<float>,
                                                      std::span<float>);
template void conv2d_backward_weight_reference<double>(const Conv2dGeometry&,
                                                       std::span<const double>,
                                                       std::span<const double>, std::span<double>,
                                                       std::span<double>);

}  // namespace steady::kernels
