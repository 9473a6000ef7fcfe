#include <steadygrad/core/io/safetensors.hpp>

#include <algorithm>
#include <numeric>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/safetensors_elements.hpp>

namespace steady::safetensors {
namespace {

std::string place(const std::string& path, std::string_view name) {
  return fmt::format("'{}' of '{}'", shown(name), path);
}

Shape shape_of(const TensorInfo& info, const std::string& path) {
  STEADY_CHECK(IoError, info.dims.size() <= static_cast<std::size_t>(Shape::MaxRank),
               "safetensors: {}: a tensor has at most {} dimensions; got {}",
               place(path, info.name), Shape::MaxRank, info.dims.size());
  return Shape(std::span<const std::int64_t>(info.dims));
}

}  // namespace

File File::open(const std::filesystem::path& path, const ReadOptions& options) {
  File file;
  file.path_ = path.string();
  file.file_ = MappedFile("safetensors", path);
  file.header_ = read_header(file.file_.bytes(), file.path_, options);
  const std::vector<TensorInfo>& tensors = file.header_.tensors;
  file.by_name_.resize(tensors.size());
  std::iota(file.by_name_.begin(), file.by_name_.end(), 0U);
  std::ranges::sort(file.by_name_, {},
                    [&](std::uint32_t i) -> const std::string& { return tensors[i].name; });
  return file;
}

std::vector<std::pair<std::string, std::string>> File::aliases() const {
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& [name, value] : metadata()) {
    if (find(name) == nullptr && find(value) != nullptr) result.emplace_back(name, value);
  }
  return result;
}

const TensorInfo* File::find(std::string_view name) const {
  const auto name_of = [&](std::uint32_t i) -> std::string_view { return header_.tensors[i].name; };
  const auto at = std::ranges::lower_bound(by_name_, name, {}, name_of);
  return at == by_name_.end() || name_of(*at) != name ? nullptr : &header_.tensors[*at];
}

const TensorInfo& File::at(std::string_view name) const {
  const TensorInfo* info = find(name);
  STEADY_CHECK(IoError, info != nullptr, "safetensors: {}: there is no such tensor",
               place(path_, name));
  return *info;
}

std::span<const std::byte> File::bytes(std::string_view name) const {
  const TensorInfo& info = at(name);
  return file_.bytes().subspan(static_cast<std::size_t>(header_.data_begin + info.begin),
                               static_cast<std::size_t>(info.end - info.begin));
}

Tensor File::read(std::string_view name) const { return read(name, natural_dtype(at(name).type)); }

Tensor File::read(std::string_view name, Dtype dtype) const {
  const TensorInfo& info = at(name);
  Tensor result = Tensor::empty(shape_of(info, path_), dtype);
  decode_elements(bytes(name), info.type, result, place(path_, name));
  return result;
}

}  // namespace steady::safetensors
