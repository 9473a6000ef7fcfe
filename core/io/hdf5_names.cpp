#include <fmt/format.h>

#include <steadygrad/core/io/hdf5.hpp>

namespace steady::hdf5 {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string to_string(const Value& value) {
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

std::string escape(std::string_view name) {
  if (name.empty()) return "%";
  const bool dots = name.find_first_not_of('.') == std::string_view::npos;
  std::string link;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '%' || c == '/' || c == '\0' || (dots && i == 0)) {
      link += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      link += c;
    }
  }
  return link;
}

std::string unescape(std::string_view link) {
  if (link == "%") return "";
  std::string name;
  for (std::size_t i = 0; i < link.size(); ++i) {
    const int high = link[i] == '%' && i + 2 < link.size() ? hex_digit(link[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(link[i + 2]) : -1;
    if (low < 0) {
      name += link[i];
      continue;
    }
    name += static_cast<char>(16 * high + low);
    i += 2;
  }
  return name;
}

}  // namespace steady::hdf5
