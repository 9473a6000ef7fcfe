#include "tests/support/golden.hpp"

#include <hdf5.h>

#include <algorithm>
#include <cmath>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady::testing_support {

/// An open file. HDF5 identifiers of other kinds live in Handle.
struct GoldenFile {
  explicit GoldenFile(std::string file) : name(std::move(file)) {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    const std::string path = STEADY_GOLDEN_DIR "/" + name;
    id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    STEADY_CHECK(IoError, id >= 0, "golden: cannot open {}", path);
  }
  ~GoldenFile() { H5Fclose(id); }
  GoldenFile(const GoldenFile&) = delete;
  GoldenFile& operator=(const GoldenFile&) = delete;

  std::string name;
  hid_t id = -1;
};

namespace {

class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t), const std::string& what) : id_(id), close_(close) {
    STEADY_CHECK(IoError, id >= 0, "golden: cannot open {}", what);
  }
  ~Handle() { close_(id_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

std::string join(const std::string& path, const std::string& relative) {
  return relative.empty() ? path : path + "/" + relative;
}

/// H5Lexists wants every step of the path to exist.
bool exists(hid_t file, const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    if (H5Lexists(file, path.substr(0, end).c_str(), H5P_DEFAULT) <= 0) return false;
    if (end == std::string::npos) return true;
  }
}

std::vector<std::string> members(const GoldenFile& file, const std::string& path, H5I_type_t kind) {
  if (path != "/" && !exists(file.id, path)) return {};
  const Handle group(H5Gopen2(file.id, path.c_str(), H5P_DEFAULT), H5Gclose,
                     file.name + ":" + path);
  std::vector<std::string> all;
  H5Literate(
      group, H5_INDEX_NAME, H5_ITER_INC, nullptr,
      [](hid_t, const char* name, const H5L_info_t*, void* names) {
        static_cast<std::vector<std::string>*>(names)->emplace_back(name);
        return herr_t{0};
      },
      &all);
  std::erase_if(all, [&](const std::string& name) {
    const Handle object(H5Oopen(group, name.c_str(), H5P_DEFAULT), H5Oclose, name);
    return H5Iget_type(object) != kind;
  });
  std::ranges::sort(all);
  return all;
}

Shape shape_of(hid_t space) {
  std::vector<hsize_t> extents(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space)));
  H5Sget_simple_extent_dims(space, extents.data(), nullptr);
  const std::vector<std::int64_t> result(extents.begin(), extents.end());
  return Shape(std::span<const std::int64_t>(result));
}

/// All numbers of an attribute (a scalar is one), converted by HDF5 to T.
template <class T>
std::vector<T> read_attribute(const GoldenFile& file, const std::string& path,
                              const std::string& name) {
  const std::string what = file.name + ":" + path + " attribute " + name;
  const Handle attribute(
      H5Aopen_by_name(file.id, path.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
      what);
  const Handle space(H5Aget_space(attribute), H5Sclose, what);
  std::vector<T> result(static_cast<std::size_t>(shape_of(space).numel()));
  const hid_t type = std::same_as<T, double> ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT64;
  STEADY_CHECK(IoError, H5Aread(attribute, type, result.data()) >= 0, "golden: cannot read {}",
               what);
  return result;
}

bool attribute_exists(const GoldenFile& file, const std::string& path, const std::string& name) {
  return H5Aexists_by_name(file.id, path.c_str(), name.c_str(), H5P_DEFAULT) > 0;
}

}  // namespace

std::string GoldenCase::name() const { return path_.substr(path_.rfind('/') + 1); }

bool GoldenCase::has(const std::string& relative) const {
  return exists(file_->id, join(path_, relative));
}

Tensor GoldenCase::tensor(const std::string& relative) const {
  const std::string path = join(path_, relative);
  const std::string what = file_->name + ":" + path;
  const Handle set(H5Dopen2(file_->id, path.c_str(), H5P_DEFAULT), H5Dclose, what);
  const Handle space(H5Dget_space(set), H5Sclose, what);
  const Handle type(H5Dget_type(set), H5Tclose, what);
  const bool integer = H5Tget_class(type) == H5T_INTEGER;
  Tensor t = Tensor::empty(shape_of(space), integer ? Dtype::I64 : Dtype::F64);
  STEADY_CHECK(IoError,
               H5Dread(set, integer ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL,
                       H5P_DEFAULT, t.storage().bytes()) >= 0,
               "golden: cannot read {}", what);
  return t;
}

std::vector<std::string> GoldenCase::datasets(const std::string& relative) const {
  return members(*file_, join(path_, relative), H5I_DATASET);
}

std::vector<GoldenCase> GoldenCase::groups() const {
  std::vector<GoldenCase> result;
  for (const std::string& name : members(*file_, path_, H5I_GROUP)) {
    result.push_back(GoldenCase(file_, join(path_, name)));
  }
  return result;
}

GoldenCase GoldenCase::group(const std::string& relative) const {
  STEADY_CHECK(IoError, has(relative), "golden: {} has no group {}", file_->name,
               join(path_, relative));
  return {file_, join(path_, relative)};
}

double GoldenCase::float32_error(const std::string& relative) const {
  const std::string path = join(path_, relative);
  if (!attribute_exists(*file_, path, "f32_abs_err")) return 0.0;
  return read_attribute<double>(*file_, path, "f32_abs_err").at(0);
}

bool GoldenCase::has_attribute(const std::string& name) const {
  return attribute_exists(*file_, path_, name);
}

std::int64_t GoldenCase::attribute_int(const std::string& name) const {
  return attribute_ints(name).at(0);
}
std::int64_t GoldenCase::attribute_int(const std::string& name, std::int64_t otherwise) const {
  return has_attribute(name) ? attribute_int(name) : otherwise;
}
std::vector<std::int64_t> GoldenCase::attribute_ints(const std::string& name) const {
  return read_attribute<std::int64_t>(*file_, path_, name);
}
double GoldenCase::attribute_double(const std::string& name) const {
  return attribute_doubles(name).at(0);
}
double GoldenCase::attribute_double(const std::string& name, double otherwise) const {
  return has_attribute(name) ? attribute_double(name) : otherwise;
}
std::vector<double> GoldenCase::attribute_doubles(const std::string& name) const {
  return read_attribute<double>(*file_, path_, name);
}

std::string GoldenCase::attribute_string(const std::string& name) const {
  const std::string what = file_->name + ":" + path_ + " attribute " + name;
  const Handle attribute(
      H5Aopen_by_name(file_->id, path_.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
      what);
  const Handle type(H5Aget_type(attribute), H5Tclose, what);
  STEADY_CHECK(IoError, H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0,
               "golden: {} is not a fixed-length text", what);
  std::string text(H5Tget_size(type), '\0');
  STEADY_CHECK(IoError, H5Aread(attribute, type, text.data()) >= 0, "golden: cannot read {}", what);
  return text.c_str();  // up to the padding
}
std::string GoldenCase::attribute_string(const std::string& name,
                                         const std::string& otherwise) const {
  return has_attribute(name) ? attribute_string(name) : otherwise;
}

std::filesystem::path golden_path(const std::string& name) {
  return std::filesystem::path(STEADY_GOLDEN_DIR) / name;
}

Golden::Golden(const std::string& file) : file_(std::make_shared<const GoldenFile>(file)) {}

GoldenCase Golden::group(const std::string& path) const {
  return GoldenCase(file_, "").group(path.front() == '/' ? path.substr(1) : path);
}

std::vector<GoldenCase> Golden::cases(const std::string& group_name) const {
  std::vector<GoldenCase> result = group(group_name).groups();
  STEADY_CHECK(IoError, !result.empty(), "golden: {} has no cases of {}", file_->name, group_name);
  return result;
}

}  // namespace steady::testing_support
