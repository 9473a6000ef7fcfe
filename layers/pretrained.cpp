#include <steadygrad/layers/pretrained.hpp>

#include <algorithm>
#include <map>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/safetensors_checkpoint.hpp>

namespace steady {
namespace {

using safetensors::Checkpoint;
using safetensors::shown;

/// One tensor of a checkpoint under our name.
struct Source {
  std::string theirs;
  bool alias = false;
};

/// Our name -> the tensor of the file. Throws Error when two come to one name.
std::map<std::string, Source> sources(const Checkpoint& file, const WeightLayout& layout) {
  std::map<std::string, Source> result;
  for (std::string& theirs : file.names()) {
    if (fits_any(layout.ignored, theirs)) continue;
    const auto [at, fresh] = result.try_emplace(our_name(layout, theirs), Source{theirs});
    STEADY_CHECK(Error, fresh, "'{}' and '{}' both come to '{}'", shown(at->second.theirs),
                 shown(theirs), shown(at->first));
  }
  for (const auto& [alias, stored] : file.aliases()) {
    result.try_emplace(our_name(layout, alias), Source{stored, true});
  }
  return result;
}

/// The bytes of both are the same numbers.
bool agree(const Checkpoint& file, const std::string& a, const std::string& b) {
  const Tensor x = file.read(a);
  const Tensor y = file.read(b);
  if (x.shape() != y.shape() || x.dtype() != y.dtype()) return false;
  return dispatch_all(x.dtype(), [&]<class T>() {
    return std::ranges::equal(x.data<T>(), y.data<T>(),
                              [](T p, T q) { return p == q || (p != p && q != q); });
  });
}

/// Takes tensors out that the model has under another name, once they agree with it.
void drop_tied(const Checkpoint& file, const WeightLayout& layout, const Module& model,
               std::map<std::string, Source>& from) {
  const State state = model.state();
  for (const auto& [absent, present] : layout.tied) {
    const auto extra = from.find(absent);
    const auto kept = from.find(present);
    if (find(state, absent).defined() || extra == from.end() || kept == from.end()) continue;
    STEADY_CHECK(Error, agree(file, extra->second.theirs, kept->second.theirs),
                 "'{}' and '{}' are one tensor in the model but differ in the file", absent,
                 present);
    from.erase(extra);
  }
}

LoadReport load(Module& model, const Checkpoint& file, const PretrainedOptions& options) {
  std::map<std::string, Source> from = sources(file, options.layout);
  drop_tied(file, options.layout, model, from);
  State state;
  for (const auto& [name, own] : model.state()) {
    const auto at = from.find(name);
    if (at == from.end()) continue;
    state.push_back({name, to_ours(options.layout, name, file.read(at->second.theirs))});
    from.erase(at);
  }
  // The rest is named in the report, not read. An alias promises nothing.
  for (const auto& [name, source] : from) {
    if (!source.alias) state.push_back({name, Tensor()});
  }
  return model.load(state, {.strict = options.strict});
}

}  // namespace

LoadReport load_safetensors(Module& model, const std::filesystem::path& path,
                            const PretrainedOptions& options) {
  const Checkpoint file = Checkpoint::open(path, options.reading);
  try {
    return load(model, file, options);
  } catch (const IoError&) {
    throw;
  } catch (const Error& error) {
    throw Error(fmt::format("load_safetensors: '{}': {}", file.path(), error.what()));
  }
}

void save_safetensors(const Module& model, const std::filesystem::path& path,
                      const SaveSafetensorsOptions& options) {
  STEADY_CHECK(
      Error, !options.type || is_float(safetensors::natural_dtype(*options.type)),
      "save_safetensors: the type of floating tensors must be F16, BF16, F32 or F64; got {}",
      safetensors::to_string(*options.type));
  const State state = model.state();
  std::vector<safetensors::Stored> tensors;
  for (const auto& [name, value] : state) {
    safetensors::Stored stored{their_name(options.layout, name),
                               to_theirs(options.layout, name, value)};
    if (is_float(value.dtype())) stored.type = options.type;
    tensors.push_back(std::move(stored));
  }
  safetensors::Metadata metadata = options.metadata;
  for (const auto& [absent, present] : options.layout.tied) {
    if (!find(state, present).defined() || find(state, absent).defined()) continue;
    metadata.emplace_back(their_name(options.layout, absent), their_name(options.layout, present));
  }
  safetensors::write(path, tensors, metadata);
}

}  // namespace steady
