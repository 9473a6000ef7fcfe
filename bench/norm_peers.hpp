#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "bench/norm_arrays.hpp"

// oneDNN's primitives over the arrays of a norm benchmark: the peer beside our kernels. Each is
// created under the thread count that it runs with, and has statistics of its own.
namespace steady::bench {

using Memories = std::unordered_map<int, dnnl::memory>;

inline dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

inline dnnl::memory view(const dnnl::memory::desc& desc, float* data) {
  return dnnl::memory(desc, engine(), data);
}

/// Primitive and arguments.
inline std::function<void()> runner(const dnnl::primitive& primitive, const Memories& arguments) {
  return [primitive, arguments] {
    static dnnl::stream stream(engine());
    primitive.execute(stream, arguments);
    stream.wait();
  };
}

/// A norm's arguments, forward and backward; `data` is the layout of x, dy, y and dx.
template <class Forward>
Memories norm_arguments(Arrays& a, std::int64_t width, const dnnl::memory::desc& data,
                        const Forward& forward) {
  const dnnl::memory::desc scale({width}, dnnl::memory::data_type::f32,
                                 dnnl::memory::format_tag::a);
  return {{DNNL_ARG_SRC, view(data, a.x.data())},
          {DNNL_ARG_SCALE, view(scale, a.gamma.data())},
          {DNNL_ARG_SHIFT, view(scale, a.beta.data())},
          {DNNL_ARG_MEAN, dnnl::memory(forward.mean_desc(), engine())},
          {DNNL_ARG_VARIANCE, dnnl::memory(forward.variance_desc(), engine())},
          {DNNL_ARG_DST, view(data, a.y.data())},
          {DNNL_ARG_DIFF_DST, view(data, a.dy.data())},
          {DNNL_ARG_DIFF_SRC, view(data, a.dx.data())},
          {DNNL_ARG_DIFF_SCALE, view(scale, a.dgamma.data())},
          {DNNL_ARG_DIFF_SHIFT, view(scale, a.dbeta.data())}};
}

inline std::function<void()> onednn_layer_norm(Arrays& a, std::int64_t rows, std::int64_t width,
                                               bool backward) {
  using namespace dnnl;
  using Kind = layer_normalization_forward;
  const memory::desc data({rows, width}, memory::data_type::f32, memory::format_tag::ab);
  const auto flags = normalization_flags::use_scale | normalization_flags::use_shift;
  const Kind::primitive_desc forward({prop_kind::forward_training, data, 1e-5F, flags}, engine());
  const Memories arguments = norm_arguments(a, width, data, forward);
  auto run = runner(Kind(forward), arguments);
  if (!backward) return run;
  run();  // statistics
  const layer_normalization_backward::primitive_desc desc(
      {prop_kind::backward, data, data, 1e-5F, flags}, engine(), forward);
  return runner(layer_normalization_backward(desc), arguments);
}

/// `tag`: how images, channels, size, size lie in memory; size 0: [images, channels].
inline std::function<void()> onednn_batch_norm(Arrays& a, std::int64_t images, std::int64_t size,
                                               std::int64_t channels, dnnl::memory::format_tag tag,
                                               bool backward) {
  using namespace dnnl;
  using Kind = batch_normalization_forward;
  const memory::dims dims =
      size == 0 ? memory::dims{images, channels} : memory::dims{images, channels, size, size};
  const memory::desc data(dims, memory::data_type::f32, tag);
  const auto flags = normalization_flags::use_scale | normalization_flags::use_shift;
  const Kind::primitive_desc forward({prop_kind::forward_training, data, 1e-5F, flags}, engine());
  const Memories arguments = norm_arguments(a, channels, data, forward);
  auto run = runner(Kind(forward), arguments);
  if (!backward) return run;
  run();  // statistics
  const batch_normalization_backward::primitive_desc desc(
      {prop_kind::backward, data, data, 1e-5F, flags}, engine(), forward);
  return runner(batch_normalization_backward(desc), arguments);
}

inline std::function<void()> onednn_softmax(Arrays& a, std::int64_t rows, std::int64_t width,
                                            bool backward) {
  using namespace dnnl;
  const memory::desc data({rows, width}, memory::data_type::f32, memory::format_tag::ab);
  const softmax_forward::primitive_desc forward({prop_kind::forward_training, data, 1}, engine());
  auto run = runner(softmax_forward(forward), {{DNNL_ARG_SRC, view(data, a.x.data())},
                                               {DNNL_ARG_DST, view(data, a.y.data())}});
  if (!backward) return run;
  run();
  const softmax_backward::primitive_desc desc({data, data, 1}, engine(), forward);
  return runner(softmax_backward(desc), {{DNNL_ARG_DST, view(data, a.y.data())},
                                         {DNNL_ARG_DIFF_DST, view(data, a.dy.data())},
                                         {DNNL_ARG_DIFF_SRC, view(data, a.dx.data())}});
}

}  // namespace steady::bench
