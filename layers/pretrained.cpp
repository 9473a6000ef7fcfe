#include <steadygrad/layers/pretrained.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/safetensors_checkpoint.hpp>
#include <utility>

namespace steady {
namespace {

using safetensors::Checkpoint;
using safetensors::shown;

std::string shown_list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : "; ") + shown(name, 300);
  return text;
}

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

/// A tensor of the model and where its values are.
struct Copy {
  std::string name;
  std::string theirs;
};

/// The dims of a tensor of the file once it is laid out as ours.
std::vector<std::int64_t> our_dims(const WeightLayout& layout, std::string_view name,
                                   const safetensors::TensorInfo& info) {
  std::vector<std::int64_t> dims = info.dims;
  if (dims.size() == 2 && is_transposed(layout, name)) std::swap(dims[0], dims[1]);
  return dims;
}

bool fits(const Tensor& own, const std::vector<std::int64_t>& dims, safetensors::Type type) {
  return std::ranges::equal(own.shape().extents(), dims) &&
         is_float(own.dtype()) == is_float(safetensors::natural_dtype(type));
}

/// What is to be copied. Looks at headers only, tensors that are one in the model aside.
std::vector<Copy> plan(const Module& model, const Checkpoint& file, const WeightLayout& layout,
                       LoadReport& report) {
  std::map<std::string, Source> from = sources(file, layout);
  drop_tied(file, layout, model, from);
  std::vector<Copy> copies;
  std::map<std::uint64_t, Copy> by_storage;
  std::vector<NamedTensor> absent;
  for (const auto& [name, own] : model.state()) {
    const auto at = from.find(name);
    if (at == from.end()) {
      absent.push_back({name, own});
      continue;
    }
    Copy copy{name, at->second.theirs};
    from.erase(at);
    const safetensors::TensorInfo& info = file.at(copy.theirs);
    if (!fits(own, our_dims(layout, name, info), info.type)) {
      report.misfit.push_back(
          fmt::format("{}: model {}, file {}", name, steady::describe(own), describe(info)));
      continue;
    }
    const auto [known, fresh] = by_storage.try_emplace(own.storage().id(), copy);
    STEADY_CHECK(Error, fresh || agree(file, known->second.theirs, copy.theirs),
                 "'{}' and '{}' are one tensor in the model but differ in the file",
                 known->second.name, name);
    if (fresh) copies.push_back(std::move(copy));
  }
  for (const auto& [name, own] : absent) {
    if (!by_storage.contains(own.storage().id())) report.missing.push_back(name);
  }
  for (const auto& [name, source] : from) {
    if (!source.alias) report.unexpected.push_back(name);  // an alias promises nothing
  }
  return copies;
}

void refuse(const LoadReport& report) {
  std::string text = "the file does not fit the model";
  const auto list = [&](const char* title, const std::vector<std::string>& names) {
    if (!names.empty()) text += fmt::format("\n  {}: {}", title, shown_list(names));
  };
  list("missing", report.missing);
  list("unexpected", report.unexpected);
  list("other shape or dtype", report.misfit);
  throw Error(text);
}

LoadReport load(Module& model, const Checkpoint& file, const PretrainedOptions& options) {
  LoadReport report;
  const std::vector<Copy> copies = plan(model, file, options.layout, report);
  if (options.strict && !report.clean()) refuse(report);
  // A few at a time: they are still in the cache when they are copied, and never twice in memory.
  constexpr std::uint64_t Batch = 1U << 20;
  State some;
  std::uint64_t bytes = 0;
  const auto copy_some = [&] {
    model.load(some, {.strict = false});
    some.clear();
    bytes = 0;
  };
  for (const Copy& copy : copies) {
    some.push_back({copy.name, to_ours(options.layout, copy.name, file.read(copy.theirs))});
    const safetensors::TensorInfo& info = file.at(copy.theirs);
    bytes += info.end - info.begin;
    if (bytes >= Batch) copy_some();
  }
  copy_some();
  return report;
}

}  // namespace

LoadReport load_safetensors(Module& model, const std::filesystem::path& path,
                            const PretrainedOptions& options) {
  const Checkpoint file = Checkpoint::open(path, options.reading);
  try {
    check_layout(options.layout, model.state());
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
  check_layout(options.layout, state);
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
