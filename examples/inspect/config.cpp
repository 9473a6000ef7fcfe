#include "examples/inspect/config.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <steadygrad/core/error.hpp>
#include <system_error>

namespace steady::examples::inspect {
namespace {

constexpr std::uintmax_t MaxBytes = 16U << 20;
constexpr int MaxDepth = 64;

}  // namespace

Config Config::read(const std::filesystem::path& path) {
  std::error_code error;
  STEADY_CHECK(IoError, std::filesystem::is_regular_file(path, error),
               "config: there is no file '{}'", path.string());
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  STEADY_CHECK(IoError, !error && size <= MaxBytes,
               "config: '{}' has {} bytes, at most {} are read", path.string(), size, MaxBytes);
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  STEADY_CHECK(IoError, file.good() || file.eof(), "config: '{}' cannot be read", path.string());
  return parse(text, path.string());
}

Config Config::parse(std::string_view text, const std::string& file) {
  Config config;
  config.path_ = file;
  const auto shallow = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    STEADY_CHECK(IoError, depth <= MaxDepth, "config: '{}' is nested more than {} deep", file,
                 MaxDepth);
    return true;
  };
  try {
    config.values_ = nlohmann::json::parse(text, shallow);
  } catch (const nlohmann::json::exception& error) {
    throw IoError(fmt::format("config: '{}' is no JSON: {}", file, error.what()));
  }
  STEADY_CHECK(IoError, config.values_.is_object(), "config: '{}' is no JSON object", file);
  return config;
}

const nlohmann::json* Config::find(std::string_view key) const {
  if (!known()) return nullptr;
  const std::string name(key);
  if (const auto at = values_.find(name); at != values_.end()) return &*at;
  const auto text = values_.find("text_config");
  if (text == values_.end() || !text->is_object()) return nullptr;
  const auto at = text->find(name);
  return at == text->end() ? nullptr : &*at;
}

std::optional<double> Config::number(std::string_view key) const {
  const nlohmann::json* value = find(key);
  return value == nullptr || !value->is_number() ? std::nullopt
                                                 : std::optional(value->get<double>());
}

std::optional<std::string> Config::text(std::string_view key) const {
  const nlohmann::json* value = find(key);
  return value == nullptr || !value->is_string() ? std::nullopt
                                                 : std::optional(value->get<std::string>());
}

std::optional<std::pair<std::string, double>> Config::first_number(
    const std::vector<std::string>& keys) const {
  for (const std::string& key : keys) {
    if (const auto value = number(key)) return std::pair(key, *value);
  }
  return std::nullopt;
}

std::string Config::model_type() const {
  if (const auto type = text("model_type")) return *type;
  const nlohmann::json* classes = find("architectures");
  if (classes == nullptr || !classes->is_array() || classes->empty()) return "";
  if (!classes->front().is_string()) return "";
  std::string name = classes->front().get<std::string>();
  for (const char* ending :
       {"ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration",
        "ForImageClassification", "ForSequenceClassification", "Model"}) {
    if (const std::string_view e = ending; name.ends_with(e)) {
      name.resize(name.size() - e.size());
      break;
    }
  }
  std::ranges::transform(name, name.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return name;
}

}  // namespace steady::examples::inspect
