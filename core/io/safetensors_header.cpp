#include <steadygrad/core/io/safetensors_header.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/json_events-inl.hpp>
#include <unordered_set>

namespace steady::safetensors {
namespace {

constexpr std::uint64_t MaxInt64 = std::numeric_limits<std::int64_t>::max();

/// Messages about one file.
class Complaint {
 public:
  explicit Complaint(const std::string& file) : file_(file) {}
  template <class... Args>
  [[noreturn]] void operator()(fmt::format_string<Args...> text, Args&&... args) const {
    throw IoError(fmt::format("safetensors: '{}': {}", file_,
                              fmt::format(text, std::forward<Args>(args)...)));
  }

 private:
  const std::string& file_;
};

/// Takes the header's JSON apart. What may come where is the format's whole structure, three levels
/// deep; everything else is refused at once.
class HeaderEvents final : public detail::JsonEvents {
 public:
  HeaderEvents(const Complaint& complain, Header& header) : complain_(complain), header_(header) {}

  bool start_object(std::size_t) override {
    if (place_ == Place::Start) return go(Place::Names);
    if (place_ != Place::Name) return fail("an object");
    if (name_ == "__metadata__") return go(Place::Metadata);
    header_.tensors.emplace_back().name = name_;
    fields_ = {};
    return go(Place::Fields);
  }

  bool key(string_t& text) override {
    auto& known = place_ == Place::Metadata ? texts_ : names_;
    if (place_ == Place::Fields) return field(text);
    if (!known.insert(text).second) complain_("duplicate key; '{}' comes twice", shown(text));
    name_ = text;
    return place_ == Place::Metadata || go(Place::Name);
  }

  bool end_object() override {
    if (place_ == Place::Fields && !std::ranges::all_of(fields_, [](bool b) { return b; })) {
      complain_("entry without exactly dtype, shape, data_offsets; '{}' has no {}", shown(name_),
                !fields_[0]   ? "dtype"
                : !fields_[1] ? "shape"
                              : "data_offsets");
    }
    return go(Place::Names);
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::Shape) return go(Place::Dims);
    if (place_ == Place::Pair) return go(Place::Offsets);
    return fail("a list");
  }

  bool end_array() override {
    if (place_ == Place::Offsets && offsets_ != 2) {
      complain_("data_offsets is not a pair; '{}' has {} of them", shown(name_), offsets_);
    }
    return go(Place::Fields);
  }

  bool number_unsigned(number_unsigned_t value) override {
    TensorInfo* info = header_.tensors.empty() ? nullptr : &header_.tensors.back();
    if (place_ == Place::Dims) {
      if (value > MaxInt64)
        complain_("shape overflows; '{}' has dimension {}", shown(name_), value);
      if (info->dims.size() == MaxRank) {
        complain_("'{}' has more than {} dimensions, the limit of this reader", shown(name_),
                  MaxRank);
      }
      info->dims.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ != Place::Offsets) return fail("a number");
    if (offsets_ == 2) {
      complain_("data_offsets is not a pair; '{}' has more than 2 of them", shown(name_));
    }
    (offsets_++ == 0 ? info->begin : info->end) = value;
    return true;
  }

  bool string(string_t& text) override {
    if (place_ == Place::Metadata) {
      header_.metadata.emplace_back(name_, text);
      return true;
    }
    if (place_ != Place::Dtype) return fail("a text");
    const std::optional<Type> type = parse_type(text);
    if (!type) {
      complain_("unknown dtype; '{}' has '{}', known are {}", shown(name_), shown(text),
                known_types());
    }
    header_.tensors.back().type = *type;
    return go(Place::Fields);
  }

 protected:
  bool fail(const char* what) override {
    switch (place_) {
      case Place::Name:
        if (name_ == "__metadata__") complain_("__metadata__ is not a map of texts; got {}", what);
        complain_("entry without exactly dtype, shape, data_offsets; '{}' is {}", shown(name_),
                  what);
      case Place::Metadata:
        complain_("__metadata__ is not a map of texts; '{}' is {}", shown(name_), what);
      case Place::Dtype:
        complain_("unknown dtype; '{}' has {}", shown(name_), what);
      case Place::Shape:
        complain_("shape is not a list; '{}' has {}", shown(name_), what);
      case Place::Dims:
        complain_("dimension is not a non-negative integer; '{}' has {}", shown(name_), what);
      case Place::Pair:
        complain_("data_offsets is not a pair; '{}' has {}", shown(name_), what);
      case Place::Offsets:
        complain_("offset is not a non-negative integer; '{}' has {}", shown(name_), what);
      case Place::Start:
      case Place::Names:
      case Place::Fields:
        break;
    }
    complain_("header does not start with {{; it is {}", what);
  }

  bool bad_syntax(std::size_t at, const std::string& reason) override {
    complain_("invalid JSON at byte {} of the header: {}", at, shown(reason));
  }

 private:
  /// Where the reader stands: before the object, between its names, behind a name, in the metadata,
  /// between the fields of an entry, behind the name of one, in a list.
  enum class Place : std::uint8_t {
    Start,
    Names,
    Name,
    Metadata,
    Fields,
    Dtype,
    Shape,
    Dims,
    Pair,
    Offsets
  };

  bool go(Place place) {
    place_ = place;
    return true;
  }

  bool field(const std::string& text) {
    static constexpr std::array<std::string_view, 3> Names{"dtype", "shape", "data_offsets"};
    static constexpr std::array<Place, 3> Next{Place::Dtype, Place::Shape, Place::Pair};
    const auto at = static_cast<std::size_t>(std::ranges::find(Names, text) - Names.begin());
    if (at == Names.size()) {
      complain_("entry without exactly dtype, shape, data_offsets; '{}' has a field '{}'",
                shown(name_), shown(text));
    }
    if (fields_[at]) complain_("duplicate key; '{}' has {} twice", shown(name_), text);
    fields_[at] = true;
    offsets_ = 0;
    return go(Next[at]);
  }

  const Complaint& complain_;
  Header& header_;
  Place place_ = Place::Start;
  std::string name_;  // of the entry, or of the text in the metadata
  std::array<bool, 3> fields_{};
  int offsets_ = 0;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> texts_;
};

/// Bytes of a tensor; nothing when they, or the product of the non-zero dims, exceed int64.
std::optional<std::uint64_t> bytes_of(const TensorInfo& info) {
  std::uint64_t bytes = static_cast<std::uint64_t>(size_of(info.type));
  bool empty = false;
  for (const std::int64_t dim : info.dims) {
    const auto d = static_cast<std::uint64_t>(dim);
    empty = empty || d == 0;
    if (d == 0) continue;
    if (bytes > MaxInt64 / d) return std::nullopt;
    bytes *= d;
  }
  return empty ? 0 : bytes;
}

void check_range(const TensorInfo& t, std::uint64_t data_size, const Complaint& complain) {
  if (t.begin > t.end) {
    complain("begin after end; '{}' has data_offsets [{}, {}]", shown(t.name), t.begin, t.end);
  }
  if (t.end > data_size) {
    complain("offset beyond the data; '{}' ends at byte {} of {}", shown(t.name), t.end, data_size);
  }
  const std::optional<std::uint64_t> bytes = bytes_of(t);
  if (!bytes) complain("shape overflows; '{}' is {}", shown(t.name), describe(t));
  if (*bytes != t.end - t.begin) {
    complain("shape and dtype do not match the byte range; '{}', {}, takes {} bytes, its range {}",
             shown(t.name), describe(t), *bytes, t.end - t.begin);
  }
}

/// Every byte of the data belongs to exactly one tensor.
void check_cover(Header& header, std::uint64_t data_size, const ReadOptions& options,
                 const Complaint& complain) {
  std::ranges::stable_sort(header.tensors, {},
                           [](const TensorInfo& t) { return std::pair(t.begin, t.end); });
  std::uint64_t at = 0;
  const std::string* before = nullptr;
  for (const TensorInfo& t : header.tensors) {
    if (t.begin < at) {
      complain("overlapping tensors; '{}' begins at byte {}, before '{}' ends at {}", shown(t.name),
               t.begin, shown(*before), at);
    }
    if (t.begin > at) {
      complain("hole in the data; bytes {} to {}, before '{}', belong to no tensor", at, t.begin,
               shown(t.name));
    }
    at = t.end;
    before = &t.name;
  }
  header.ignored_bytes = data_size - at;
  const bool lenient = options.allow_trailing_bytes && !header.tensors.empty();
  if (header.ignored_bytes > 0 && !lenient) {
    complain("bytes after the last tensor; {} of {} belong to none", header.ignored_bytes,
             data_size);
  }
}

}  // namespace

Header read_header(std::span<const std::byte> bytes, const std::string& file,
                   const ReadOptions& options) {
  const Complaint complain(file);
  constexpr std::size_t LengthBytes = 8;
  if (bytes.size() < LengthBytes) {
    complain("no header length; it takes {} bytes, the file has {}", LengthBytes, bytes.size());
  }
  std::uint64_t length = 0;
  for (std::size_t i = LengthBytes; i-- > 0;) {
    length = length << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  }
  const std::size_t rest = bytes.size() - LengthBytes;
  if (length > MaxHeaderBytes) {
    complain("header length above the limit; {} bytes, the limit is {}, the file has {}", length,
             MaxHeaderBytes, bytes.size());
  }
  if (length > rest) {
    complain("header longer than the file; {} bytes behind the length, the file has {}", length,
             rest);
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + LengthBytes;
  const std::string_view json(text, static_cast<std::size_t>(length));
  if (json.empty() || json.front() != '{') {
    complain("header does not start with {{; it has {} bytes, the file {}", length, bytes.size());
  }
  // The JSON reader takes NUL for the end.
  if (const std::size_t nul = json.find('\0'); nul != json.npos) {
    complain("invalid JSON at byte {} of the header: NUL", nul);
  }
  Header header;
  header.data_begin = LengthBytes + length;
  HeaderEvents events(complain, header);
  detail::read_json(json.data(), json.data() + json.size(), events);
  const std::uint64_t data_size = bytes.size() - header.data_begin;
  for (const TensorInfo& t : header.tensors) check_range(t, data_size, complain);
  check_cover(header, data_size, options, complain);
  return header;
}

}  // namespace steady::safetensors
