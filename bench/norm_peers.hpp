#pragma once

#include <cstdint>
#include <cstdlib>
#include <dnnl.hpp>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>

// The arrays of a norm benchmark, and oneDNN's primitives over them: the peer beside our kernels.
namespace steady::bench {

/// 64-byte aligned and touched, as the library's own allocator hands it out.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::int64_t n) : size_(static_cast<std::size_t>(n)) {
    const std::size_t bytes = (size_ * sizeof(T) + 63) / 64 * 64 + 64;
    data_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
    for (std::size_t i = 0; i < size_; ++i) {
      data_.get()[i] = static_cast<T>(static_cast<int>(i * 7919 % 2001) - 1000) / T(1000);
    }
  }
  operator std::span<T>() { return {data_.get(), size_}; }
  operator std::span<const T>() { return {data_.get(), size_}; }
  T* data() { return data_.get(); }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::size_t size_;
  std::unique_ptr<T, Free> data_;
};

/// Everything one benchmark touches; rows x width, statistics per row or per column.
struct Arrays {
  Arrays(std::int64_t rows, std::int64_t width, std::int64_t statistics, std::int64_t room)
      : x(rows * width),
        dy(rows * width),
        y(rows * width),
        dx(rows * width),
        gamma(width),
        beta(width),
        dgamma(width),
        dbeta(width),
        stats(statistics),
        workspace(room) {}
  Buffer<float> x, dy, y, dx, gamma, beta, dgamma, dbeta, stats, workspace;
};

using Memories = std::unordered_map<int, dnnl::memory>;

inline dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

inline dnnl::memory view(const dnnl::memory::desc& desc, float* data) {
  return dnnl::memory(desc, engine(), data);
}

/// Primitive and arguments; created under the thread count it runs with.
inline std::function<void()> runner(const dnnl::primitive& primitive, const Memories& arguments) {
  return [primitive, arguments] {
    static dnnl::stream stream(engine());
    primitive.execute(stream, arguments);
    stream.wait();
  };
}

inline std::function<void()> onednn_layer_norm(Arrays& a, std::int64_t rows, std::int64_t width,
                                               bool backward) {
  using namespace dnnl;
  using Kind = layer_normalization_forward;
  const memory::desc data({rows, width}, memory::data_type::f32, memory::format_tag::ab);
  const memory::desc scale({width}, memory::data_type::f32, memory::format_tag::a);
  const auto flags = normalization_flags::use_scale | normalization_flags::use_shift;
  const Kind::primitive_desc forward({prop_kind::forward_training, data, 1e-5F, flags}, engine());
  const Memories arguments{
      {DNNL_ARG_SRC, view(data, a.x.data())},
      {DNNL_ARG_SCALE, view(scale, a.gamma.data())},
      {DNNL_ARG_SHIFT, view(scale, a.beta.data())},
      {DNNL_ARG_MEAN, view(forward.mean_desc(), a.stats.data())},
      {DNNL_ARG_VARIANCE, view(forward.variance_desc(), a.stats.data() + rows)},
      {DNNL_ARG_DST, view(data, a.y.data())},
      {DNNL_ARG_DIFF_DST, view(data, a.dy.data())},
      {DNNL_ARG_DIFF_SRC, view(data, a.dx.data())},
      {DNNL_ARG_DIFF_SCALE, view(scale, a.dgamma.data())},
      {DNNL_ARG_DIFF_SHIFT, view(scale, a.dbeta.data())}};
  auto run = runner(Kind(forward), arguments);
  if (!backward) return run;
  run();  // statistics
  const layer_normalization_backward::primitive_desc desc(
      {prop_kind::backward, data, data, 1e-5F, flags}, engine(), forward);
  return runner(layer_normalization_backward(desc), arguments);
}

inline std::function<void()> onednn_batch_norm(Arrays& a, std::int64_t images, std::int64_t size,
                                               std::int64_t channels, bool backward) {
  using namespace dnnl;
  using Kind = batch_normalization_forward;
  const memory::desc data({images, channels, size, size}, memory::data_type::f32,
                          memory::format_tag::nhwc);
  const memory::desc scale({channels}, memory::data_type::f32, memory::format_tag::a);
  const auto flags = normalization_flags::use_scale | normalization_flags::use_shift;
  const Kind::primitive_desc forward({prop_kind::forward_training, data, 1e-5F, flags}, engine());
  const Memories arguments{
      {DNNL_ARG_SRC, view(data, a.x.data())},
      {DNNL_ARG_SCALE, view(scale, a.gamma.data())},
      {DNNL_ARG_SHIFT, view(scale, a.beta.data())},
      {DNNL_ARG_MEAN, view(forward.mean_desc(), a.stats.data())},
      {DNNL_ARG_VARIANCE, view(forward.variance_desc(), a.stats.data() + channels)},
      {DNNL_ARG_DST, view(data, a.y.data())},
      {DNNL_ARG_DIFF_DST, view(data, a.dy.data())},
      {DNNL_ARG_DIFF_SRC, view(data, a.dx.data())},
      {DNNL_ARG_DIFF_SCALE, view(scale, a.dgamma.data())},
      {DNNL_ARG_DIFF_SHIFT, view(scale, a.dbeta.data())}};
  auto run = runner(Kind(forward), arguments);
  if (!backward) return run;
  run();  // statistics
  const batch_normalization_backward::primitive_desc desc(
      {prop_kind::backward, data, data, 1e-5F, flags}, engine(), forward);
  return runner(batch_normalization_backward(desc), arguments);
}

}  // namespace steady::bench
