#include "examples/inspect/tensor_list.hpp"

#include <algorithm>
#include <memory>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/hdf5.hpp>
#include <steadygrad/core/io/safetensors_checkpoint.hpp>

namespace steady::examples::inspect {
namespace {

std::vector<double> values_of(const Tensor& tensor) {
  return dispatch_all(tensor.dtype(), [&]<class T>() {
    const auto data = tensor.data<T>();
    return std::vector<double>(data.begin(), data.end());
  });
}

TensorList list_safetensors(const std::filesystem::path& path) {
  const auto file = std::make_shared<const safetensors::Checkpoint>(
      safetensors::Checkpoint::open(path, {.allow_trailing_bytes = true}));
  TensorList list{.path = file->path(),
                  .folder = file->folder(),
                  .tensors = {},
                  .aliases = file->aliases(),
                  .unread = {},
                  .ignored_bytes = 0};
  for (const std::string& name : file->names()) {
    const safetensors::TensorInfo& info = file->at(name);
    list.tensors.push_back({name, info.dims, std::string(safetensors::to_string(info.type)),
                            [file, name] { return values_of(file->read(name)); }});
  }
  for (const safetensors::File& f : file->files()) list.ignored_bytes += f.ignored_bytes();
  return list;
}

/// The datasets in `group` and below.
void walk(const hdf5::Group& group, const std::string& prefix, int depth, TensorList& list) {
  constexpr int MaxDepth = 32;
  STEADY_CHECK(IoError, depth <= MaxDepth, "hdf5: '{}' has groups more than {} deep", list.path,
               MaxDepth);
  for (const std::string& name : group.datasets()) {
    try {
      const Tensor tensor = group.read(name);
      const auto dims = tensor.shape().extents();
      list.tensors.push_back({prefix + name,
                              {dims.begin(), dims.end()},
                              std::string(to_string(tensor.dtype())),
                              [tensor] { return values_of(tensor); }});
    } catch (const Error& error) {
      list.unread.emplace_back(error.what());
    }
  }
  for (const std::string& name : group.groups()) {
    const bool holder = depth == 0 && (name == "parameters" || name == "buffers");
    walk(group.group(name), holder ? prefix : prefix + name + ".", depth + 1, list);
  }
}

TensorList list_hdf5(const std::filesystem::path& path) {
  TensorList list{.path = path.string(),
                  .folder = path.parent_path(),
                  .tensors = {},
                  .aliases = {},
                  .unread = {},
                  .ignored_bytes = 0};
  const hdf5::File file = hdf5::File::open(path);
  const hdf5::Group root = file.root();
  if (root.has("model")) {
    walk(root.group("model"), "", 0, list);
  } else {
    walk(root, "", 0, list);
  }
  std::ranges::sort(list.tensors, {}, &TensorEntry::name);
  return list;
}

}  // namespace

std::int64_t TensorEntry::numel() const {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) count *= dim;
  return count;
}

const TensorEntry* TensorList::find(const std::string& name) const {
  const auto at = std::ranges::lower_bound(tensors, name, {}, &TensorEntry::name);
  return at == tensors.end() || at->name != name ? nullptr : &*at;
}

TensorList list_tensors(const std::filesystem::path& path) {
  return hdf5::is_hdf5(path) ? list_hdf5(path) : list_safetensors(path);
}

}  // namespace steady::examples::inspect
