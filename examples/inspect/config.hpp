#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace steady::examples::inspect {

/// A config.json: what a model's file does not say about itself. Values are looked for at the top
/// and then in "text_config", where multimodal models have them.
class Config {
 public:
  /// Nothing known.
  Config() = default;
  /// Throws IoError for a file that is missing, beyond 16 MiB, no JSON object, or nested more than
  /// 64 deep.
  [[nodiscard]] static Config read(const std::filesystem::path& path);
  /// From the text of such a file.
  [[nodiscard]] static Config parse(std::string_view text, const std::string& file);

  [[nodiscard]] bool known() const { return values_.is_object(); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  /// Nothing when the key is missing or its value of another kind.
  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const;
  /// The first of these keys that has a number, and the number.
  [[nodiscard]] std::optional<std::pair<std::string, double>> first_number(
      const std::vector<std::string>& keys) const;
  /// "model_type", or else the class in "architectures" without its ending, in lower case.
  [[nodiscard]] std::string model_type() const;

 private:
  [[nodiscard]] const nlohmann::json* find(std::string_view key) const;
  std::string path_;
  nlohmann::json values_ = nullptr;
};

}  // namespace steady::examples::inspect
