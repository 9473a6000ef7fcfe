#include <fmt/format.h>

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/json_events-inl.hpp>
#include <steadygrad/core/io/safetensors_checkpoint.hpp>
#include <unordered_set>

namespace steady::safetensors {
namespace {

class IndexEvents final : public detail::JsonEvents {
 public:
  IndexEvents(std::string file, WeightMap& map) : file_(std::move(file)), map_(map) {}

  [[nodiscard]] bool found() const { return found_; }

  bool start_object(std::size_t) override {
    deeper();
    if (depth_ == 2 && member_ == "weight_map") inside_ = true;
    if (inside_ && depth_ > 2) fail("an object");
    return true;
  }
  bool end_object() override {
    if (depth_ == 2) inside_ = false;
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0 || inside_ || member_ == "weight_map") fail("a list");
    deeper();
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }

  bool key(string_t& text) override {
    if (depth_ == 1) {
      member_ = text;
      if (text == "weight_map" && std::exchange(found_, true)) {
        complain("duplicate key; 'weight_map' comes twice");
      }
    } else if (inside_) {
      if (!tensors_.insert(text).second) {
        complain(fmt::format("duplicate key; '{}' comes twice", shown(text)));
      }
      tensor_ = text;
    }
    return true;
  }

  bool string(string_t& text) override {
    if (!inside_) return other("a text");
    check_name(text);
    map_.emplace_back(tensor_, text);
    return true;
  }
  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("true or false"); }
  bool number_integer(number_integer_t) override { return other("a number"); }
  bool number_unsigned(number_unsigned_t) override { return other("a number"); }
  bool number_float(number_float_t, const string_t&) override { return other("a number"); }

 protected:
  bool fail(const char* what) override {
    if (inside_) complain(fmt::format("the file of '{}' is {}", shown(tensor_), what));
    if (depth_ == 0) complain(fmt::format("not a JSON object; it is {}", what));
    complain(fmt::format("weight_map is not an object; it is {}", what));
  }
  bool bad_syntax(std::size_t at, const std::string& reason) override {
    complain(fmt::format("invalid JSON at byte {}: {}", at, shown(reason)));
  }

 private:
  [[noreturn]] void complain(const std::string& text) const {
    throw IoError(fmt::format("safetensors: '{}': {}", file_, text));
  }

  void deeper() {
    constexpr int MaxDepth = 64;
    if (++depth_ > MaxDepth) complain(fmt::format("nested more than {} deep", MaxDepth));
  }

  /// A value that is not the name of a file.
  bool other(const char* what) {
    return !(inside_ || depth_ == 0 || (depth_ == 1 && member_ == "weight_map")) || fail(what);
  }

  void check_name(const std::string& name) const {
    const bool plain = std::ranges::none_of(name, [](char c) {
      const auto byte = static_cast<unsigned char>(c);
      return byte < 0x20 || byte == 0x7F || c == '/' || c == '\\';
    });
    if (!plain || name.starts_with('.') || !name.ends_with(".safetensors")) {
      complain(
          fmt::format("the file of '{}' must be a plain name in this folder that ends in "
                      ".safetensors; got '{}'",
                      shown(tensor_), shown(name)));
    }
  }

  std::string file_;
  WeightMap& map_;
  int depth_ = 0;
  bool inside_ = false;  // the weight_map
  bool found_ = false;
  std::string member_;
  std::string tensor_;
  std::unordered_set<std::string> tensors_;
};

}  // namespace

WeightMap read_index(std::string_view text, const std::string& file) {
  WeightMap map;
  IndexEvents events(file, map);
  // The JSON reader takes NUL for the end.
  STEADY_CHECK(IoError, text.find('\0') == text.npos, "safetensors: '{}': invalid JSON: NUL", file);
  detail::read_json(text.data(), text.data() + text.size(), events);
  STEADY_CHECK(IoError, events.found(), "safetensors: '{}': there is no weight_map", file);
  return map;
}

}  // namespace steady::safetensors
