#include <steadygrad/core/io/hdf5.hpp>

#include <fmt/format.h>
#include <hdf5.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <steadygrad/core/error.hpp>

namespace steady::hdf5 {
namespace {

static_assert(sizeof(hid_t) == sizeof(std::int64_t));

/// One call at a time, and errors as exceptions instead of HDF5's printed stack.
class Call {
 public:
  Call() : lock_(mutex()) { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

 private:
  static std::recursive_mutex& mutex() {
    static std::recursive_mutex m;
    return m;
  }
  std::lock_guard<std::recursive_mutex> lock_;
};

/// What the innermost failing function of HDF5 said.
std::string reason() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned n, const H5E_error2_t* error, void* out) {
        if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
        return herr_t{0};
      },
      &text);
  return text.empty() ? "HDF5 gives no reason" : text;
}

template <class Result>
Result check(Result result, const char* what, const std::string& where) {
  STEADY_CHECK(IoError, result >= 0, "hdf5: cannot {} {}: {}", what, where, reason());
  return result;
}

Handle owned(hid_t id, const char* what, const std::string& where) {
  return Handle(check(id, what, where));
}

hid_t native_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32:
      return H5T_NATIVE_FLOAT;
    case Dtype::F64:
      return H5T_NATIVE_DOUBLE;
    case Dtype::I32:
      return H5T_NATIVE_INT32;
    case Dtype::I64:
      break;
  }
  return H5T_NATIVE_INT64;
}

Handle string_type(std::size_t size) {
  Handle type = owned(H5Tcopy(H5T_C_S1), "make", "a string type");
  H5Tset_size(type.id(), std::max<std::size_t>(size, 1));
  H5Tset_strpad(type.id(), H5T_STR_NULLPAD);
  H5Tset_cset(type.id(), H5T_CSET_UTF8);
  return type;
}

/// Links and attributes remember the order in which they were made; no times, so that equal runs
/// give equal files.
Handle creation_list(hid_t kind, const std::string& where) {
  Handle list = owned(H5Pcreate(kind), "describe", where);
  H5Pset_obj_track_times(list.id(), false);
  constexpr unsigned Ordered = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
  H5Pset_attr_creation_order(list.id(), Ordered);
  if (kind != H5P_DATASET_CREATE) H5Pset_link_creation_order(list.id(), Ordered);
  return list;
}

/// The oldest superblock: the newer ones have a flag for files that are open, under a checksum that
/// H5Fget_file_image spoils. The objects are of the newer kind all the same, with checksums.
Handle access_list(const std::string& where) {
  Handle list = owned(H5Pcreate(H5P_FILE_ACCESS), "open", where);
  H5Pset_libver_bounds(list.id(), H5F_LIBVER_EARLIEST, H5F_LIBVER_V18);
#if H5_VERSION_GE(1, 10, 7)
  H5Pset_file_locking(list.id(), false, true);
#endif
  return list;
}

/// HDF5 takes two files in memory of one name for one file.
std::string unique(const std::string& name) {
  static std::atomic<std::uint64_t> count = 0;
  return fmt::format("{}#{}", name, ++count);
}

Value read_attribute(hid_t attribute, const std::string& where) {
  const Handle type = owned(H5Aget_type(attribute), "read", where);
  const auto read = [&](hid_t as, auto value) -> Value {
    check(H5Aread(attribute, as, &value), "read", where);
    return value;
  };
  switch (H5Tget_class(type.id())) {
    case H5T_INTEGER:
      return H5Tget_sign(type.id()) == H5T_SGN_NONE ? read(H5T_NATIVE_UINT64, std::uint64_t{})
                                                    : read(H5T_NATIVE_INT64, std::int64_t{});
    case H5T_FLOAT:
      return read(H5T_NATIVE_DOUBLE, 0.0);
    case H5T_STRING: {
      STEADY_CHECK(IoError, H5Tis_variable_str(type.id()) == 0,
                   "hdf5: cannot read {}: a string of variable length", where);
      std::string text(H5Tget_size(type.id()), '\0');
      check(H5Aread(attribute, type.id(), text.data()), "read", where);
      text.resize(std::min(text.size(), text.find('\0')));
      return text;
    }
    default:
      break;
  }
  throw IoError(fmt::format("hdf5: cannot read {}: neither a number nor a string", where));
}

}  // namespace

Handle::~Handle() {
  if (id_ < 0) return;
  const Call call;
  H5Idec_ref(id_);
}

bool is_hdf5(const std::filesystem::path& path) {
  const Call call;
  std::error_code none;
  return std::filesystem::is_regular_file(path, none) && H5Fis_hdf5(path.c_str()) > 0;
}

std::string version() {
  const Call call;
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

// --- file --------------------------------------------------------------------------------------

File File::create_in_memory(std::string name) {
  const Call call;
  const Handle access = access_list(name);
  check(H5Pset_fapl_core(access.id(), std::size_t{1} << 20, false), "make", name);
  const Handle creation = creation_list(H5P_FILE_CREATE, name);
  File file;
  file.id_ = owned(H5Fcreate(unique(name).c_str(), H5F_ACC_TRUNC, creation.id(), access.id()),
                   "make", name);
  file.name_ = std::move(name);
  return file;
}

File File::open_image(std::string name, std::span<const std::byte> bytes) {
  const Call call;
  STEADY_CHECK(IoError, !bytes.empty(), "hdf5: cannot open {}: it is empty", name);
  const Handle access = access_list(name);
  check(H5Pset_fapl_core(access.id(), std::size_t{1} << 20, false), "open", name);
  check(H5Pset_file_image(access.id(), const_cast<std::byte*>(bytes.data()), bytes.size()), "open",
        name);
  File file;
  file.id_ = owned(H5Fopen(unique(name).c_str(), H5F_ACC_RDONLY, access.id()), "open", name);
  file.name_ = std::move(name);
  return file;
}

File File::open(const std::filesystem::path& path) {
  const Call call;
  File file;
  file.name_ = path.string();
  STEADY_CHECK(IoError, std::filesystem::is_regular_file(path), "hdf5: there is no file {}",
               file.name_);
  const Handle access = access_list(file.name_);
  file.id_ = owned(H5Fopen(file.name_.c_str(), H5F_ACC_RDONLY, access.id()), "open", file.name_);
  return file;
}

Group File::root() const {
  const Call call;
  Group group;
  group.where_ = name_ + ":";
  group.id_ = owned(H5Gopen2(id_.id(), "/", H5P_DEFAULT), "open", group.where_);
  return group;
}

std::vector<std::byte> File::image(std::size_t before) const {
  const Call call;
  check(H5Fflush(id_.id(), H5F_SCOPE_GLOBAL), "flush", name_);
  const ssize_t size = check(H5Fget_file_image(id_.id(), nullptr, 0), "copy", name_);
  std::vector<std::byte> bytes(before + static_cast<std::size_t>(size));
  check(H5Fget_file_image(id_.id(), bytes.data() + before, bytes.size() - before), "copy", name_);
  return bytes;
}

// --- group -------------------------------------------------------------------------------------

std::string Group::at(std::string_view name) const { return where_ + "/" + escape(name); }

Group Group::group(std::string_view name, bool create) const {
  const Call call;
  const std::string link = escape(name);
  Group result;
  result.where_ = at(name);
  if (create && !has(name)) {
    const Handle creation = creation_list(H5P_GROUP_CREATE, result.where_);
    result.id_ = owned(H5Gcreate2(id_.id(), link.c_str(), H5P_DEFAULT, creation.id(), H5P_DEFAULT),
                       "make", result.where_);
  } else {
    result.id_ = owned(H5Gopen2(id_.id(), link.c_str(), H5P_DEFAULT), "open", result.where_);
  }
  return result;
}

bool Group::has(std::string_view name) const {
  const Call call;
  return check(H5Lexists(id_.id(), escape(name).c_str(), H5P_DEFAULT), "look for", at(name)) > 0;
}

std::vector<std::string> Group::members(bool want_groups) const {
  const Call call;
  std::vector<std::string> links;
  hsize_t position = 0;
  check(H5Literate(
            id_.id(), H5_INDEX_NAME, H5_ITER_INC, &position,
            [](hid_t, const char* name, const H5L_info_t*, void* out) {
              static_cast<std::vector<std::string>*>(out)->emplace_back(name);
              return herr_t{0};
            },
            &links),
        "list", where_);
  std::vector<std::string> names;
  for (const std::string& link : links) {
    const Handle object = owned(H5Oopen(id_.id(), link.c_str(), H5P_DEFAULT), "open",
                                fmt::format("{}/{}", where_, link));
    const bool is_group = H5Iget_type(object.id()) == H5I_GROUP;
    if (is_group == want_groups) names.push_back(unescape(link));
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> Group::groups() const { return members(true); }
std::vector<std::string> Group::datasets() const { return members(false); }

void Group::set_attribute(std::string_view name, const Value& value) const {
  const Call call;
  const std::string link = escape(name);
  const std::string where = fmt::format("attribute '{}' of {}", name, where_);
  if (check(H5Aexists(id_.id(), link.c_str()), "look for", where) > 0) {
    check(H5Adelete(id_.id(), link.c_str()), "replace", where);
  }
  const Handle space = owned(H5Screate(H5S_SCALAR), "describe", where);
  const auto write = [&](hid_t type, const void* data) {
    const Handle attribute =
        owned(H5Acreate2(id_.id(), link.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT),
              "make", where);
    check(H5Awrite(attribute.id(), type, data), "write", where);
  };
  if (const auto* i = std::get_if<std::int64_t>(&value)) {
    write(H5T_NATIVE_INT64, i);
  } else if (const auto* u = std::get_if<std::uint64_t>(&value)) {
    write(H5T_NATIVE_UINT64, u);
  } else if (const auto* d = std::get_if<double>(&value)) {
    write(H5T_NATIVE_DOUBLE, d);
  } else {
    const std::string& text = std::get<std::string>(value);
    const Handle type = string_type(text.size());
    write(type.id(), text.c_str());
  }
}

Attributes Group::attributes() const {
  const Call call;
  std::vector<std::string> links;
  hsize_t position = 0;
  check(H5Aiterate2(
            id_.id(), H5_INDEX_CRT_ORDER, H5_ITER_INC, &position,
            [](hid_t, const char* name, const H5A_info_t*, void* out) {
              static_cast<std::vector<std::string>*>(out)->emplace_back(name);
              return herr_t{0};
            },
            &links),
        "list the attributes of", where_);
  Attributes result;
  for (const std::string& link : links) {
    const std::string where = fmt::format("attribute '{}' of {}", unescape(link), where_);
    const Handle attribute = owned(H5Aopen(id_.id(), link.c_str(), H5P_DEFAULT), "open", where);
    result.emplace_back(unescape(link), read_attribute(attribute.id(), where));
  }
  return result;
}

// --- tensors -----------------------------------------------------------------------------------

void Group::write(std::string_view name, const Tensor& tensor) const {
  const Call call;
  const std::string where = at(name);
  check_defined("hdf5", "tensor", tensor);
  const std::vector<hsize_t> extents(tensor.shape().begin(), tensor.shape().end());
  const Handle space =
      extents.empty()
          ? owned(H5Screate(H5S_SCALAR), "describe", where)
          : owned(H5Screate_simple(tensor.rank(), extents.data(), nullptr), "describe", where);
  const Handle creation = creation_list(H5P_DATASET_CREATE, where);
  const hid_t type = native_type(tensor.dtype());
  const Handle dataset = owned(H5Dcreate2(id_.id(), escape(name).c_str(), type, space.id(),
                                          H5P_DEFAULT, creation.id(), H5P_DEFAULT),
                               "make", where);
  if (tensor.numel() == 0) return;
  check(H5Dwrite(dataset.id(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.storage().bytes()),
        "write", where);
}

Tensor Group::read(std::string_view name) const {
  const Call call;
  const std::string where = at(name);
  const Handle dataset =
      owned(H5Dopen2(id_.id(), escape(name).c_str(), H5P_DEFAULT), "open", where);
  const Handle type = owned(H5Dget_type(dataset.id()), "read", where);
  const Handle space = owned(H5Dget_space(dataset.id()), "read", where);
  const int rank = check(H5Sget_simple_extent_ndims(space.id()), "read", where);
  std::vector<hsize_t> extents(static_cast<std::size_t>(rank));
  H5Sget_simple_extent_dims(space.id(), extents.data(), nullptr);
  const std::vector<std::int64_t> shape(extents.begin(), extents.end());
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::I32, Dtype::I64}) {
    if (H5Tequal(type.id(), native_type(dtype)) <= 0) continue;
    Tensor tensor = Tensor::empty(Shape(std::span(shape)), dtype);
    if (tensor.numel() == 0) return tensor;
    check(H5Dread(dataset.id(), native_type(dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT,
                  tensor.storage().bytes()),
          "read", where);
    return tensor;
  }
  throw IoError(fmt::format("hdf5: cannot read {}: its numbers are of no dtype", where));
}

// --- tables ------------------------------------------------------------------------------------

namespace {

Handle record_type(const std::vector<Column>& columns, const std::string& where) {
  std::size_t words = 0;
  for (const Column& c : columns) words += static_cast<std::size_t>(c.extent);
  Handle record = owned(H5Tcreate(H5T_COMPOUND, 8 * words), "describe", where);
  std::size_t offset = 0;
  for (const Column& c : columns) {
    const hid_t element = c.kind == Column::Kind::I64 ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE;
    const auto extent = static_cast<hsize_t>(c.extent);
    const Handle array = c.extent == 1
                             ? owned(H5Tcopy(element), "describe", where)
                             : owned(H5Tarray_create2(element, 1, &extent), "describe", where);
    check(H5Tinsert(record.id(), c.name.c_str(), offset, array.id()), "describe", where);
    offset += 8 * static_cast<std::size_t>(c.extent);
  }
  return record;
}

Column column_of(hid_t record, unsigned index, const std::string& where) {
  Column column;
  char* name = H5Tget_member_name(record, index);
  STEADY_CHECK(IoError, name != nullptr, "hdf5: cannot read {}: {}", where, reason());
  column.name = name;
  H5free_memory(name);
  const Handle type = owned(H5Tget_member_type(record, index), "read", where);
  hid_t element = type.id();
  Handle base;
  if (H5Tget_class(element) == H5T_ARRAY) {
    hsize_t extent = 0;
    STEADY_CHECK(IoError,
                 H5Tget_array_ndims(element) == 1 && H5Tget_array_dims2(element, &extent) == 1,
                 "hdf5: cannot read {}: field '{}' has several axes", where, column.name);
    column.extent = static_cast<std::int64_t>(extent);
    base = owned(H5Tget_super(element), "read", where);
    element = base.id();
  }
  const bool integer = H5Tequal(element, H5T_NATIVE_INT64) > 0;
  STEADY_CHECK(IoError, integer || H5Tequal(element, H5T_NATIVE_DOUBLE) > 0,
               "hdf5: cannot read {}: field '{}' is neither int64 nor float64", where, column.name);
  column.kind = integer ? Column::Kind::I64 : Column::Kind::F64;
  return column;
}

}  // namespace

Table Group::create_table(std::string_view name, std::vector<Column> columns) const {
  const Call call;
  Table table;
  table.where_ = at(name);
  STEADY_CHECK(IoError, !columns.empty(), "hdf5: cannot make {}: it has no columns", table.where_);
  const Handle type = record_type(columns, table.where_);
  const hsize_t none = 0;
  const hsize_t unlimited = H5S_UNLIMITED;
  const hsize_t chunk = 64;
  const Handle space = owned(H5Screate_simple(1, &none, &unlimited), "describe", table.where_);
  const Handle creation = creation_list(H5P_DATASET_CREATE, table.where_);
  check(H5Pset_chunk(creation.id(), 1, &chunk), "describe", table.where_);
  check(H5Pset_shuffle(creation.id()), "describe", table.where_);
  check(H5Pset_deflate(creation.id(), 1), "describe", table.where_);
  check(H5Pset_fletcher32(creation.id()), "describe", table.where_);
  table.id_ = owned(H5Dcreate2(id_.id(), escape(name).c_str(), type.id(), space.id(), H5P_DEFAULT,
                               creation.id(), H5P_DEFAULT),
                    "make", table.where_);
  table.columns_ = std::move(columns);
  return table;
}

Table Group::open_table(std::string_view name) const {
  const Call call;
  Table table;
  table.where_ = at(name);
  table.id_ = owned(H5Dopen2(id_.id(), escape(name).c_str(), H5P_DEFAULT), "open", table.where_);
  const Handle type = owned(H5Dget_type(table.id_.id()), "read", table.where_);
  const Handle space = owned(H5Dget_space(table.id_.id()), "read", table.where_);
  STEADY_CHECK(
      IoError,
      H5Tget_class(type.id()) == H5T_COMPOUND && H5Sget_simple_extent_ndims(space.id()) == 1,
      "hdf5: cannot read {}: not a table of records", table.where_);
  const int members = check(H5Tget_nmembers(type.id()), "read", table.where_);
  for (int i = 0; i < members; ++i) {
    table.columns_.push_back(column_of(type.id(), static_cast<unsigned>(i), table.where_));
  }
  return table;
}

std::int64_t Table::width() const {
  std::int64_t words = 0;
  for (const Column& c : columns_) words += c.extent;
  return words;
}

std::int64_t Table::rows() const {
  const Call call;
  const Handle space = owned(H5Dget_space(id_.id()), "read", where_);
  return check(H5Sget_simple_extent_npoints(space.id()), "read", where_);
}

void Table::append(std::span<const std::uint64_t> words) {
  const Call call;
  const auto width = static_cast<std::size_t>(this->width());
  STEADY_CHECK(IoError, words.size() % width == 0,
               "hdf5: cannot append to {}: {} words are no multiple of {}", where_, words.size(),
               width);
  if (words.empty()) return;
  const auto begin = static_cast<hsize_t>(rows());
  const hsize_t count = words.size() / width;
  const hsize_t end = begin + count;
  check(H5Dset_extent(id_.id(), &end), "extend", where_);
  const Handle memory = owned(H5Screate_simple(1, &count, nullptr), "describe", where_);
  const Handle file = owned(H5Dget_space(id_.id()), "extend", where_);
  check(H5Sselect_hyperslab(file.id(), H5S_SELECT_SET, &begin, nullptr, &count, nullptr), "extend",
        where_);
  const Handle type = record_type(columns_, where_);
  check(H5Dwrite(id_.id(), type.id(), memory.id(), file.id(), H5P_DEFAULT, words.data()), "write",
        where_);
}

std::vector<std::uint64_t> Table::read() const {
  const Call call;
  std::vector<std::uint64_t> words(static_cast<std::size_t>(rows() * width()));
  if (words.empty()) return words;
  const Handle type = record_type(columns_, where_);
  check(H5Dread(id_.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, words.data()), "read", where_);
  return words;
}

}  // namespace steady::hdf5
