#include <steadygrad/core/io/checkpoint.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <set>
#include <span>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/crc64.hpp>
#include <steadygrad/core/io/replace_file.hpp>
#include <system_error>

namespace steady {
namespace {

constexpr std::size_t HeaderBytes = 512;  // HDF5 looks for its own beginning here
constexpr std::string_view Magic = "steadygrad checkpoint ";
constexpr std::string_view Version = "1";
constexpr std::string_view Hdf5Magic = "\x89HDF";

/// The first bytes of a file of `size` bytes whose HDF5 part has the checksum `crc`.
std::string header(std::size_t size, std::uint64_t crc) {
  std::string text = fmt::format("{}{}\nbytes {}\ncrc64 {:016x}\nHDF5 begins at byte {}.\n", Magic,
                                 Version, size, crc, HeaderBytes);
  text.resize(HeaderBytes, '\0');
  return text;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The text between `before` and the end of its line, "" without such a line.
std::string_view field(std::string_view text, std::string_view before) {
  const std::size_t at = text.find(before);
  if (at == text.npos) return {};
  const std::size_t begin = at + before.size();
  const std::size_t end = text.find('\n', begin);
  return end == text.npos ? std::string_view{} : text.substr(begin, end - begin);
}

void check_names(const Checkpoint& checkpoint) {
  std::set<std::string_view> parts;
  for (const auto& [part, content] : checkpoint.parts) {
    STEADY_CHECK(Error, parts.insert(part).second, "checkpoint: the part '{}' is given twice",
                 part);
    std::set<std::string_view> names;
    for (const auto& [name, tensor] : content.tensors) {
      STEADY_CHECK(Error, names.insert(name).second,
                   "checkpoint: the tensor '{}' of '{}' is given twice", name, part);
    }
    names.clear();
    for (const auto& [name, value] : content.values) {
      STEADY_CHECK(Error, names.insert(name).second,
                   "checkpoint: the value '{}' of '{}' is given twice", name, part);
      const auto* text = std::get_if<std::string>(&value);
      STEADY_CHECK(Error, text == nullptr || text->find('\0') == text->npos,
                   "checkpoint: the text '{}' of '{}' holds a NUL", name, part);
    }
  }
}

/// All bytes of a file that begins as a checkpoint does.
std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::error_code error;
  const bool regular = std::filesystem::is_regular_file(path, error);
  STEADY_CHECK(IoError, regular, "checkpoint: there is no file '{}'", path.string());
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  STEADY_CHECK(ForeignCheckpoint, in.good(), "checkpoint: cannot open '{}': {}", path.string(),
               std::generic_category().message(errno));
  const auto size = static_cast<std::size_t>(in.tellg());
  std::vector<std::byte> bytes(std::min(size, HeaderBytes));
  const auto read_to_end = [&](std::size_t from) {
    in.read(reinterpret_cast<char*>(bytes.data()) + from,
            static_cast<std::streamsize>(bytes.size() - from));
    STEADY_CHECK(IoError, in.good(), "checkpoint: cannot read '{}': {}", path.string(),
                 std::generic_category().message(errno));
  };
  in.seekg(0);
  read_to_end(0);
  const std::string_view text = as_text(bytes);
  STEADY_CHECK(IoError, !text.starts_with(Hdf5Magic),
               "checkpoint: '{}' is an HDF5 file, but no checkpoint of steadygrad", path.string());
  STEADY_CHECK(IoError,
               text.substr(0, Magic.size()) == Magic.substr(0, std::min(text.size(), Magic.size())),
               "checkpoint: '{}' is no checkpoint of steadygrad", path.string());
  const std::string_view promised = field(text, "\nbytes ");
  std::size_t expected = 0;
  std::from_chars(promised.data(), promised.data() + promised.size(), expected);
  STEADY_CHECK(IoError, size >= HeaderBytes && size >= expected,
               "checkpoint: '{}' is truncated: has {} bytes, expects {}", path.string(), size,
               expected > 0 ? fmt::format("{}", expected) : "more");
  const std::string_view version = field(text, Magic);
  STEADY_CHECK(ForeignCheckpoint, version == Version,
               "checkpoint: '{}' has format version '{}'; this program reads {}", path.string(),
               version, Version);
  STEADY_CHECK(IoError, size == expected, "checkpoint: '{}' is damaged: has {} bytes, expects {}",
               path.string(), size, expected);
  bytes.resize(size);
  if (size > HeaderBytes) read_to_end(HeaderBytes);
  return bytes;
}

CheckpointPart read_part(const hdf5::Group& group) {
  CheckpointPart part;
  for (const std::string& name : group.datasets()) part.tensors.push_back({name, group.read(name)});
  part.values = group.attributes();
  return part;
}

}  // namespace

const CheckpointPart* Checkpoint::find(std::string_view name) const {
  const auto at = std::ranges::find_if(parts, [&](const Named& n) { return n.name == name; });
  return at == parts.end() ? nullptr : &at->part;
}

void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint) {
  check_names(checkpoint);
  std::vector<std::byte> bytes;
  {
    const hdf5::File file = hdf5::File::create_in_memory(path.string());
    const hdf5::Group root = file.root();
    root.set_attribute("format", fmt::format("{}{}", Magic, Version));
    for (const auto& [name, part] : checkpoint.parts) {
      const hdf5::Group group = root.group(name, true);
      for (const NamedTensor& t : part.tensors) group.write(t.name, t.value);
      for (const auto& [key, value] : part.values) group.set_attribute(key, value);
    }
    bytes = file.image(HeaderBytes);
  }
  const std::uint64_t crc = crc64(std::span(bytes).subspan(HeaderBytes));
  const std::string front = header(bytes.size(), crc);
  std::memcpy(bytes.data(), front.data(), front.size());
  replace_file(path, bytes, {.sync = true});
}

Checkpoint load_checkpoint(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = read_file(path);
  const std::span<const std::byte> content = std::span(bytes).subspan(HeaderBytes);
  const std::uint64_t crc = crc64(content);
  // The header is rebuilt rather than parsed: not one of its bytes may differ.
  STEADY_CHECK(IoError, as_text(bytes).substr(0, HeaderBytes) == header(bytes.size(), crc),
               "checkpoint: '{}' is damaged: its content has the checksum {:016x}, its header "
               "another",
               path.string(), crc);
  const hdf5::File file = hdf5::File::open_image(path.string(), content);
  const hdf5::Group root = file.root();
  Checkpoint checkpoint;
  for (const std::string& name : root.groups()) {
    checkpoint.parts.push_back({name, read_part(root.group(name))});
  }
  return checkpoint;
}

}  // namespace steady
