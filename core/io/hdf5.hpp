#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <steadygrad/core/tensor.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

/// The part of HDF5 that the library uses. Names may hold anything: they are escaped on the way in
/// and restored on the way out. Every error is an IoError that names the file and the object and
/// gives HDF5's reason. Safe from several threads: one call at a time.
namespace steady::hdf5 {

/// The value of an attribute.
using Value = std::variant<std::int64_t, std::uint64_t, double, std::string>;
/// Attributes in their order.
using Attributes = std::vector<std::pair<std::string, Value>>;
/// As text: numbers in their shortest form that reads back the same.
[[nodiscard]] std::string to_string(const Value& value);

/// A name as one link of an HDF5 path: '%', '/' and NUL become %25, %2F and %00, a name that is
/// only dots begins with %2E, and the empty name is "%". Different names stay different.
[[nodiscard]] std::string escape(std::string_view name);
[[nodiscard]] std::string unescape(std::string_view link);

/// "1.10.8".
[[nodiscard]] std::string version();

/// Whether a file is there that HDF5 could open: its signature stands at byte 0, or behind 512,
/// 1024, 2048 ... bytes of whoever wrote it.
[[nodiscard]] bool is_hdf5(const std::filesystem::path& path);

/// An open object, closed with the handle.
class Handle {
 public:
  Handle() = default;
  explicit Handle(std::int64_t id) : id_(id) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Handle();
  [[nodiscard]] std::int64_t id() const { return id_; }

 private:
  std::int64_t id_ = -1;
};

/// A field of a table's records: one number or `extent` of them.
struct Column {
  enum class Kind : std::uint8_t { I64, F64 };
  std::string name;
  Kind kind = Kind::F64;
  std::int64_t extent = 1;
  friend bool operator==(const Column&, const Column&) = default;
};

/// A resizable chunked dataset of records, compressed and with checksums. Every number of a record
/// takes one 64-bit word, in the order of the columns.
class Table {
 public:
  [[nodiscard]] const std::vector<Column>& columns() const { return columns_; }
  /// Words of one record.
  [[nodiscard]] std::int64_t width() const;
  [[nodiscard]] std::int64_t rows() const;
  /// Adds records at the end; the number of words must be a multiple of width().
  void append(std::span<const std::uint64_t> words);
  /// All records.
  [[nodiscard]] std::vector<std::uint64_t> read() const;

 private:
  friend class Group;
  Handle id_;
  std::vector<Column> columns_;
  std::string where_;
};

class Group {
 public:
  /// Opens a group, or makes it where `create`.
  [[nodiscard]] Group group(std::string_view name, bool create = false) const;
  [[nodiscard]] bool has(std::string_view name) const;
  /// Names of the groups and of the datasets in it, sorted.
  [[nodiscard]] std::vector<std::string> groups() const;
  [[nodiscard]] std::vector<std::string> datasets() const;

  /// Sets an attribute, replacing one of that name. Attributes come back in order of creation.
  void set_attribute(std::string_view name, const Value& value) const;
  [[nodiscard]] Attributes attributes() const;

  [[nodiscard]] Table create_table(std::string_view name, std::vector<Column> columns) const;
  [[nodiscard]] Table open_table(std::string_view name) const;

  /// A tensor of any dtype as a plain dataset, and back.
  void write(std::string_view name, const Tensor& tensor) const;
  [[nodiscard]] Tensor read(std::string_view name) const;

 private:
  friend class File;
  [[nodiscard]] std::vector<std::string> members(bool want_groups) const;
  [[nodiscard]] std::string at(std::string_view name) const;
  Handle id_;
  std::string where_;  // file and path, for messages
};

/// A file. New ones are built in memory and reach the disk as a whole (image(), replace_file): a
/// file that is there is complete, whenever its writer was stopped.
class File {
 public:
  /// `name` appears in messages.
  [[nodiscard]] static File create_in_memory(std::string name);
  /// Opens a file for reading. Takes no lock.
  [[nodiscard]] static File open(const std::filesystem::path& path);
  /// Opens a file's bytes for reading; they are copied.
  [[nodiscard]] static File open_image(std::string name, std::span<const std::byte> bytes);
  [[nodiscard]] Group root() const;
  /// The file's bytes as they are now, readable by any HDF5 program, after `before` zeros. (HDF5
  /// allows 512 or a larger power of two of foreign bytes there, the "user block".)
  [[nodiscard]] std::vector<std::byte> image(std::size_t before = 0) const;

 private:
  Handle id_;
  std::string name_;
};

}  // namespace steady::hdf5
