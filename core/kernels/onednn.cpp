#include <omp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <dnnl.hpp>
#include <limits>
#include <map>
#include <mutex>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/onednn.hpp>
#include <steadygrad/core/kernels/scratch.hpp>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace steady::kernels {
namespace {

using Index = std::int64_t;
using Tag = dnnl::memory::format_tag;
constexpr auto F32 = dnnl::memory::data_type::f32;
using Desc = dnnl::memory::desc;

/// oneDNN cuts work by omp_get_max_threads(), both when a primitive is made and when it runs, and a
/// weight gradient made for two threads but run by one is silently wrong. This keeps the number at
/// one for the calling thread.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() { omp_set_num_threads(before_); }

 private:
  int before_;
};

const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& stream() {
  thread_local dnnl::stream stream(cpu());
  return stream;
}

/// oneDNN takes inputs and outputs through the same pointer type.
[[nodiscard]] dnnl::memory wrap(const Desc& desc, const float* data) {
  return {desc, cpu(), const_cast<float*>(data)};
}

[[nodiscard]] dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

struct PadScratch;

/// A primitive with the working memory it asks the caller for.
struct Step {
  dnnl::primitive primitive;
  Desc scratchpad;

  /// Throws Error, with `name` of the operation in front.
  void execute(const char* name, std::unordered_map<int, dnnl::memory> arguments) const {
    const OneThread guard;
    const auto bytes = static_cast<std::int64_t>(scratchpad.get_size());
    std::byte* pad = thread_scratch<PadScratch>().take<std::byte>(bytes).data();
    arguments.emplace(DNNL_ARG_SCRATCHPAD, dnnl::memory(scratchpad, cpu(), pad));
    try {
      primitive.execute(stream(), arguments);
    } catch (const dnnl::error& error) {
      throw Error(fmt::format("{}: oneDNN failed; {}", name, error.what()));
    }
  }
};

/// Whether oneDNN uses these instructions: an instruction set is the bits of all that it includes.
[[nodiscard]] bool has_isa(dnnl::cpu_isa isa) {
  static const auto effective = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto wanted = static_cast<unsigned>(isa);
  return (effective & wanted) == wanted;
}

/// Its blocked kernels, which it has from AVX-512 on, by the name of an implementation.
[[nodiscard]] bool is_blocked(const char* implementation) {
  return std::strncmp(implementation, "brg", 3) == 0;
}

[[nodiscard]] Step reorder(const Desc& from, const Desc& to) {
  const dnnl::reorder::primitive_desc desc(cpu(), from, cpu(), to, user_scratchpad());
  return {dnnl::reorder(desc), desc.scratchpad_desc()};
}

/// Bounded store of everything made so far; what could not be made is kept as null.
template <class Key, class Value>
class Store {
 public:
  using Entry = std::shared_ptr<const Value>;

  /// The entry of `key`, made by `make` when it is new. A dnnl::error of `make` gives null.
  template <class Make>
  Entry get(const Key& key, Make&& make) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found != entries_.end()) return found->second;
    if (entries_.size() >= Capacity) entries_.clear();
    const OneThread guard;
    Entry entry;
    try {
      if (std::unique_ptr<typename Value::Parts> parts = make())
        entry = std::make_shared<const Value>(std::move(parts));
    } catch (const dnnl::error&) {
      entry = nullptr;
    }
    return entries_.emplace(key, std::move(entry)).first->second;
  }

 private:
  static constexpr std::size_t Capacity = 512;
  std::mutex mutex_;
  std::map<Key, Entry> entries_;
};

}  // namespace

void onednn_sgemm(const GemmShape& s, float alpha, const float* a, const float* b, float beta,
                  float* c) {
  const OneThread guard;
  const dnnl_status_t status = dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m,
                                          s.n, s.k, alpha, a, s.lda, b, s.ldb, beta, c, s.ldc);
  STEADY_CHECK(Error, status == dnnl_success,
               "gemm: oneDNN sgemm failed with status {}; got m {}, n {}, k {}",
               static_cast<int>(status), s.m, s.n, s.k);
}

std::string onednn_name() {
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", v->major, v->minor, v->patch);
}

bool onednn_is_avx2() {
  return has_isa(dnnl::cpu_isa::avx2) && !has_isa(dnnl::cpu_isa::avx512_core);
}

bool onednn_prefers_sgemm(const GemmShape& s) {
  if (s.m * s.n * s.k <= 1 << 15) return false;  // a call costs more than the product
  if (has_isa(dnnl::cpu_isa::avx512_core)) return true;
  // Its AVX2 kernels read these operands across rows: rows a multiple of 2 KiB apart share a cache
  // set, and the speed halves.
  const auto aliases = [&](Index ld) { return s.k >= 512 && ld % 512 == 0; };
  return !(s.transpose_a && aliases(s.lda)) && !(!s.transpose_b && aliases(s.ldb));
}

struct OnednnConvolution::Parts {
  ConvolutionPass pass;
  Step convolution, pack, unpack;
  Desc x, y, weight, packed, bias;
  const char* implementation;
};

namespace {

/// The tensors of one geometry as oneDNN describes them.
struct Descriptors {
  explicit Descriptors(const Conv2dGeometry& g, bool with_bias) {
    const Index in = g.in_channels / g.groups;
    const Index out = g.out_channels / g.groups;
    // A grouped weight is [groups, K / groups, C / groups, kh, kw]: the same memory, one more axis.
    dnnl::memory::dims weight_dims{out, in, g.kernel[0], g.kernel[1]};
    if (g.groups > 1) weight_dims.insert(weight_dims.begin(), g.groups);
    x = Desc({g.batch, g.in_channels, g.height, g.width}, F32, Tag::nhwc);
    y = Desc({g.batch, g.out_channels, g.out_height(), g.out_width()}, F32, Tag::nhwc);
    weight = Desc(weight_dims, F32, g.groups > 1 ? Tag::goihw : Tag::oihw);
    packed = Desc(weight_dims, F32, Tag::any);
    if (with_bias) bias = Desc({g.out_channels}, F32, Tag::x);
    stride = {g.stride[0], g.stride[1]};
    dilation = {g.dilation[0] - 1, g.dilation[1] - 1};
    left = {g.padding[0], g.padding[1]};
    // What the last window leaves over must not count: oneDNN derives the output size from this.
    for (std::size_t axis = 0; axis < 2; ++axis) {
      const Index extent = axis == 0 ? g.height : g.width;
      const Index last = ((axis == 0 ? g.out_height() : g.out_width()) - 1) * g.stride[axis];
      right.push_back(last + g.dilation[axis] * (g.kernel[axis] - 1) + 1 - extent -
                      g.padding[axis]);
    }
  }

  Desc x, y, weight, packed, bias;
  dnnl::memory::dims stride, dilation, left, right;
};

constexpr auto Direct = dnnl::algorithm::convolution_direct;

using PartsPointer = std::unique_ptr<OnednnConvolution::Parts>;

/// What the three passes have in common.
template <class Primitive, class PrimitiveDesc>
PartsPointer assemble(ConvolutionPass pass, const Descriptors& d, const PrimitiveDesc& desc,
                      const Desc& packed) {
  if (std::strstr(desc.impl_info_str(), "ref") != nullptr) return nullptr;
  return std::make_unique<OnednnConvolution::Parts>(OnednnConvolution::Parts{
      pass, Step{Primitive(desc), desc.scratchpad_desc()}, reorder(d.weight, packed),
      reorder(packed, d.weight), d.x, d.y, d.weight, packed, d.bias, desc.impl_info_str()});
}

PartsPointer make(ConvolutionPass pass, const Conv2dGeometry& g, bool with_bias) {
  const Descriptors d(g, with_bias);
  const dnnl::convolution_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, Direct, d.x, d.packed, d.bias, d.y, d.stride, d.dilation,
       d.left, d.right},
      user_scratchpad(), cpu());
  if (pass == ConvolutionPass::Forward)
    return assemble<dnnl::convolution_forward>(pass, d, forward, forward.weights_desc());
  if (pass == ConvolutionPass::BackwardInput) {
    const dnnl::convolution_backward_data::primitive_desc desc(
        {Direct, d.x, d.packed, d.y, d.stride, d.dilation, d.left, d.right}, user_scratchpad(),
        cpu(), forward);
    return assemble<dnnl::convolution_backward_data>(pass, d, desc, desc.weights_desc());
  }
  const dnnl::convolution_backward_weights::primitive_desc desc(
      {Direct, d.x, d.packed, d.y, d.stride, d.dilation, d.left, d.right}, user_scratchpad(), cpu(),
      forward);
  return assemble<dnnl::convolution_backward_weights>(pass, d, desc, desc.diff_weights_desc());
}

/// oneDNN's kernels index within one call by 32-bit offsets in bytes.
[[nodiscard]] bool within_offsets(const Conv2dGeometry& g) {
  constexpr Index Limit = std::numeric_limits<std::int32_t>::max() / 4;
  return g.x_size() <= Limit && g.y_size() <= Limit && g.weight_size() <= Limit;
}

}  // namespace

OnednnConvolution::OnednnConvolution(std::unique_ptr<const Parts> parts)
    : parts_(std::move(parts)) {}
OnednnConvolution::~OnednnConvolution() = default;

std::shared_ptr<const OnednnConvolution> OnednnConvolution::find(ConvolutionPass pass,
                                                                 const Conv2dGeometry& geometry,
                                                                 bool with_bias) {
  using Pair = std::array<Index, 2>;
  using Key = std::tuple<ConvolutionPass, Index, Index, Index, Index, Index, Pair, Pair, Pair, Pair,
                         Index, bool>;
  static Store<Key, OnednnConvolution> store;
  const Conv2dGeometry& g = geometry;
  return store.get({pass, g.batch, g.height, g.width, g.in_channels, g.out_channels, g.kernel,
                    g.stride, g.padding, g.dilation, g.groups, with_bias},
                   [&] { return within_offsets(g) ? make(pass, g, with_bias) : nullptr; });
}

std::int64_t OnednnConvolution::packed_size() const {
  return static_cast<Index>(parts_->packed.get_size() / sizeof(float));
}

void OnednnConvolution::pack(const float* weight, float* packed) const {
  parts_->pack.execute("conv2d", {{DNNL_ARG_FROM, wrap(parts_->weight, weight)},
                                  {DNNL_ARG_TO, wrap(parts_->packed, packed)}});
}

void OnednnConvolution::unpack(const float* packed, float* weight) const {
  parts_->unpack.execute("conv2d", {{DNNL_ARG_FROM, wrap(parts_->packed, packed)},
                                    {DNNL_ARG_TO, wrap(parts_->weight, weight)}});
}

void OnednnConvolution::run(const float* image, const float* packed, const float* bias,
                            float* result) const {
  const Parts& p = *parts_;
  if (p.pass == ConvolutionPass::BackwardInput) {
    p.convolution.execute("conv2d", {{DNNL_ARG_DIFF_DST, wrap(p.y, image)},
                                     {DNNL_ARG_WEIGHTS, wrap(p.packed, packed)},
                                     {DNNL_ARG_DIFF_SRC, wrap(p.x, result)}});
    return;
  }
  std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, wrap(p.x, image)},
                                                  {DNNL_ARG_WEIGHTS, wrap(p.packed, packed)},
                                                  {DNNL_ARG_DST, wrap(p.y, result)}};
  if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, wrap(p.bias, bias));
  p.convolution.execute("conv2d", std::move(arguments));
}

void OnednnConvolution::run_weight(const float* x, const float* dy, float* packed) const {
  const Parts& p = *parts_;
  p.convolution.execute("conv2d", {{DNNL_ARG_SRC, wrap(p.x, x)},
                                   {DNNL_ARG_DIFF_DST, wrap(p.y, dy)},
                                   {DNNL_ARG_DIFF_WEIGHTS, wrap(p.packed, packed)}});
}

const char* OnednnConvolution::implementation() const { return parts_->implementation; }
bool OnednnConvolution::blocked() const { return is_blocked(implementation()); }

struct OnednnProduct::Parts {
  /// A block of rows.
  struct Block {
    Desc a, c;
    Step product;
  };

  GemmShape shape;
  Index rows;
  Desc b, bias, packed;
  Step pack;
  Block whole, last;
};

namespace {

/// Fewer rows leave threads without work, more of them gain nothing.
[[nodiscard]] Index block_rows(Index m) {
  return std::min<Index>(m, m >= 2048 ? 256 : m >= 1024 ? 128 : 64);
}

/// Rows of the last block.
[[nodiscard]] Index last_rows(Index m) {
  const Index rows = block_rows(m);
  return m % rows == 0 ? rows : m % rows;
}

using Block = OnednnProduct::Parts::Block;

[[nodiscard]] Desc bias_of(const GemmShape& s) {
  return {{1, s.n}, F32, dnnl::memory::format_tag::ab};
}

[[nodiscard]] dnnl::matmul::primitive_desc describe(const GemmShape& s, Index rows, const Desc& b,
                                                    bool with_bias) {
  const Desc a({rows, s.k}, F32, dnnl::memory::dims{s.lda, 1});
  const Desc c({rows, s.n}, F32, dnnl::memory::dims{s.ldc, 1});
  const dnnl::primitive_attr attributes = user_scratchpad();
  if (with_bias) return {dnnl::matmul::desc(a, b, bias_of(s), c), attributes, cpu()};
  return {dnnl::matmul::desc(a, b, c), attributes, cpu()};
}

[[nodiscard]] Block block(const dnnl::matmul::primitive_desc& desc) {
  return {desc.src_desc(), desc.dst_desc(), {dnnl::matmul(desc), desc.scratchpad_desc()}};
}

[[nodiscard]] std::unique_ptr<OnednnProduct::Parts> make(const GemmShape& s, bool with_bias) {
  const Desc any({s.k, s.n}, F32, dnnl::memory::format_tag::any);
  const Desc b({s.k, s.n}, F32,
               s.transpose_b ? dnnl::memory::dims{1, s.ldb} : dnnl::memory::dims{s.ldb, 1});
  const Index rows = block_rows(s.m);
  const dnnl::matmul::primitive_desc whole = describe(s, rows, any, with_bias);
  // The others would read a packed operand slowly or not at all.
  if (!is_blocked(whole.impl_info_str())) return nullptr;
  const Desc packed = whole.weights_desc();
  const dnnl::matmul::primitive_desc last = describe(s, last_rows(s.m), packed, with_bias);
  if (!is_blocked(last.impl_info_str())) return nullptr;
  return std::make_unique<OnednnProduct::Parts>(OnednnProduct::Parts{
      s, rows, b, bias_of(s), packed, reorder(b, packed), block(whole), block(last)});
}

}  // namespace

OnednnProduct::OnednnProduct(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
OnednnProduct::~OnednnProduct() = default;

std::shared_ptr<const OnednnProduct> OnednnProduct::find(const GemmShape& shape, bool with_bias) {
  using Key = std::tuple<Index, Index, Index, Index, bool, Index, Index, Index, bool>;
  static Store<Key, OnednnProduct> store;
  const GemmShape& s = shape;
  return store.get(
      {block_rows(s.m), last_rows(s.m), s.n, s.k, s.transpose_b, s.lda, s.ldb, s.ldc, with_bias},
      [&] { return make(s, with_bias); });
}

std::int64_t OnednnProduct::blocks(std::int64_t m) {
  return (m + block_rows(m) - 1) / block_rows(m);
}

std::int64_t OnednnProduct::packed_size() const {
  return static_cast<Index>(parts_->packed.get_size() / sizeof(float));
}

void OnednnProduct::pack(const float* b, float* packed) const {
  parts_->pack.execute(
      "gemm", {{DNNL_ARG_FROM, wrap(parts_->b, b)}, {DNNL_ARG_TO, wrap(parts_->packed, packed)}});
}

void OnednnProduct::run(std::int64_t m, std::int64_t block, const float* a, const float* packed,
                        const float* bias, float* c) const {
  const Parts& p = *parts_;
  const Block& part = block + 1 == blocks(m) ? p.last : p.whole;
  const Index row = block * p.rows;
  std::unordered_map<int, dnnl::memory> arguments{
      {DNNL_ARG_SRC, wrap(part.a, a + row * p.shape.lda)},
      {DNNL_ARG_WEIGHTS, wrap(p.packed, packed)},
      {DNNL_ARG_DST, wrap(part.c, c + row * p.shape.ldc)}};
  if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, wrap(p.bias, bias));
  part.product.execute("gemm", std::move(arguments));
}

}  // namespace steady::kernels
