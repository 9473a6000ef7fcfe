#include <steadygrad/core/error.hpp>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/matmul.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/family.hpp>
#include <steadygrad/layers/surgery.hpp>
#include <string>
#include <unordered_map>
#include <vector>

namespace steady {
namespace {

/// The layer norm over positions with the eps, affine and bias of `norm`.
NormSpec plain_layer(const NormSpec& norm) {
  return NormSpec::parse(fmt::format("layer(eps={}, affine={}, bias={})",
                                     norm.options().number("eps"), norm.options().flag("affine"),
                                     norm.options().flag("bias")));
}

void check(const Decoder::Options& o) {
  const char* op = "to_pre_rms_norm";
  STEADY_CHECK(Error, o.placement == Placement(),
               "{}: needs placement pre, where the stream is a sum; got {}", op,
               to_string(o.placement));
  // Compared whole: a norm with options of another kind computes something else.
  STEADY_CHECK(Error, o.norm.name() == "layer" && o.norm == plain_layer(o.norm),
               "{}: needs layer norms over positions; got {}", op, to_string(o.norm));
  STEADY_CHECK(Error, !o.embed_norm && !o.normformer,
               "{}: a norm of the embedding or inside a branch brings back a mean", op);
  STEADY_CHECK(Error, o.gate.name() != "layerscale",
               "{}: a gate per feature brings back a mean; multiply it into the maps before it",
               op);
}

/// Whether the norms add something that has to go elsewhere.
bool shifts(const NormSpec& norm) {
  return norm.options().flag("affine") && norm.options().flag("bias");
}

Decoder::Options converted(Decoder::Options o) {
  const bool shift = shifts(o.norm);
  o.norm = NormSpec::parse(fmt::format("rms(eps={}, affine={})", o.norm.options().number("eps"),
                                       o.norm.options().flag("affine")));
  o.bias = o.bias || shift;
  o.head_bias = o.head_bias || shift;
  o.tied = false;
  return o;
}

/// The values of a decoder by name, float64.
class Values {
 public:
  explicit Values(const State& state) {
    for (const NamedTensor& t : state) values_[t.name] = t.value.detached_copy(Dtype::F64);
  }
  [[nodiscard]] const Tensor& at(const std::string& name) const { return values_.at(name); }
  void set(const std::string& name, const Tensor& value) { values_[name] = value; }

  /// Takes the mean of every row out of a table [rows, dim].
  void recentre_rows(const std::string& name) {
    if (!values_.contains(name)) return;
    const Tensor& t = at(name);
    set(name, t - mean(t, -1, true));
  }
  /// Takes the mean over the outputs out of what a map gives.
  void recentre_outputs(const std::string& map) {
    const Tensor& w = at(map + ".weight");
    set(map + ".weight", w - mean(w, 0, true));
    const auto bias = values_.find(map + ".bias");
    if (bias != values_.end()) bias->second = bias->second - mean(bias->second);
  }
  /// Lets a map read x for x + shift: bias' = bias + W shift.
  void absorb(const std::string& map, const Tensor& shift) {
    const Tensor moved = matmul(at(map + ".weight"), shift);
    const auto bias = values_.find(map + ".bias");
    set(map + ".bias", bias == values_.end() ? moved : bias->second + moved);
  }
  /// Removes the shift of a norm and gives it, or zeros.
  [[nodiscard]] Tensor take_shift(const std::string& norm, std::int64_t features) {
    const auto at = values_.find(norm + ".bias");
    if (at == values_.end()) return Tensor::zeros({features}, Dtype::F64);
    Tensor shift = at->second;
    values_.erase(at);
    return shift;
  }
  /// Zeros where the new model has a bias and the old one had none.
  [[nodiscard]] State state_for(const Module& model) const {
    State state;
    for (const NamedTensor& t : model.state()) {
      const auto at = values_.find(t.name);
      state.push_back(
          {t.name, at != values_.end() ? at->second : Tensor::zeros(t.value.shape(), Dtype::F64)});
    }
    return state;
  }

 private:
  std::unordered_map<std::string, Tensor> values_;
};

/// One branch: the norm before it, the maps that read the norm, the map that ends it.
struct BranchNames {
  std::string norm;
  std::vector<std::string> readers;
  std::string end;
};

std::vector<BranchNames> branches_of(const Decoder::Options& o, std::int64_t layer) {
  const FamilyNames& names = family_names(o.family);
  const std::string block = fmt::format("{}.{}.{}.", names.stack, names.layers, layer);
  const std::string attention = block + names.self_attention + ".", mlp = block + names.mlp + ".";
  const auto norm = [&](int branch) {
    const ResidualSite site{.layer = layer + 1,
                            .layers = o.layers,
                            .branch = branch,
                            .branches = 2,
                            .feed_forward = branch == 1};
    return block + residual_names(o.family, residual_norms(o.placement, site), site).before;
  };
  std::vector<std::string> readers{attention + names.attention.query,
                                   attention + names.attention.key,
                                   attention + names.attention.value};
  if (names.fused) readers = {attention + names.attention.fused};
  std::vector<std::string> ups{mlp + names.feed_forward.up};
  if (o.mlp == MlpKind::SwiGlu) ups.push_back(mlp + names.feed_forward.gate);
  return {{norm(0), readers, attention + names.attention.output},
          {norm(1), ups, mlp + names.feed_forward.down}};
}

}  // namespace

std::unique_ptr<Decoder> to_pre_rms_norm(const Decoder& decoder) {
  check(decoder.o);
  const NoRecord constants;
  const FamilyNames& names = family_names(decoder.o.family);
  const std::string stack = names.stack + ".", head = names.head;
  const bool shift = shifts(decoder.o.norm);
  Values values(decoder.state());
  const std::string tokens = stack + names.tokens + ".weight";
  if (decoder.o.tied) values.set(head + ".weight", values.at(tokens));
  values.recentre_rows(tokens);
  values.recentre_rows(stack + names.positions + ".weight");
  for (std::int64_t layer = 0; layer < decoder.o.layers; ++layer) {
    for (const BranchNames& branch : branches_of(decoder.o, layer)) {
      const Tensor moved = values.take_shift(branch.norm, decoder.o.dim);
      for (const std::string& reader : branch.readers) {
        if (shift) values.absorb(reader, moved);
      }
      values.recentre_outputs(branch.end);
    }
  }
  if (shift) values.absorb(head, values.take_shift(stack + names.final_norm, decoder.o.dim));
  auto result = std::make_unique<Decoder>(converted(decoder.o));
  result->to(decoder.parameters().front().value.dtype());
  result->load(values.state_for(*result));
  return result;
}

}  // namespace steady
