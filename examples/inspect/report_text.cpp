#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <steadygrad/core/io/safetensors_types.hpp>

#include "examples/common/table.hpp"
#include "examples/inspect/report.hpp"

namespace steady::examples::inspect {
namespace {

using safetensors::shown;

std::string verdict(const NormFinding& n) {
  std::string text(to_string(n.kind));
  if (n.kind == Kind::Unknown && n.gain != nullptr && n.shift == nullptr) {
    text = "layer_norm or rms_norm";
  }
  if (n.unit_offset != 0.0) text += ", 1 + gain";
  if (n.per_head) text += *n.per_head ? ", per head" : ", all heads";
  if (n.trained && !*n.trained) text += ", untrained";
  return text;
}

/// Texts, each with the paths that share it.
using Shared = std::vector<std::pair<std::string, std::vector<std::string>>>;

void add(Shared& all, const std::string& text, const std::string& path) {
  const auto at = std::ranges::find(all, text, &Shared::value_type::first);
  if (at == all.end()) {
    all.push_back({text, {path}});
  } else {
    at->second.push_back(path);
  }
}

std::string listed(const char* title, const Shared& all, std::size_t norms) {
  if (all.empty()) return "";
  std::string text = fmt::format("\n{}\n", title);
  for (const auto& [line, paths] : all) {
    const std::string who = paths.size() == norms && norms > 1 ? "all"
                            : paths.size() <= 3
                                ? fmt::format("{}", fmt::join(paths, ", "))
                                : fmt::format("{} and {} more", paths[0], paths.size() - 1);
    text += fmt::format("  {}: {}\n", who, line);
  }
  return text;
}

std::string conclusion(const Report& report) {
  std::map<std::string, std::size_t> kinds;
  std::size_t open = 0;
  std::size_t unhealthy = 0;
  for (const NormFinding& n : report.norms) {
    ++kinds[verdict(n)];
    open += n.certainty == Certainty::Undecidable ? 1U : 0U;
    unhealthy += n.health.empty() ? 0U : 1U;
  }
  if (kinds.empty()) return "No normalization was found.\n";
  std::string text;
  for (const auto& [kind, count] : kinds) {
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", count, kind);
  }
  text += fmt::format(". {} undecidable, {} with something unhealthy.", open, unhealthy);
  return text + "\n";
}

}  // namespace

std::string to_text(const Report& report) {
  std::string text = fmt::format("{}: {} tensors", report.list.path, report.list.tensors.size());
  text += report.config.known() ? fmt::format(", config {}", report.config.path()) : ", no config";
  if (report.family != nullptr) {
    text += fmt::format(", {} by its {}", report.family->name,
                        report.family_by_config ? "config" : "names");
  }
  text += fmt::format(", placement {}\n\n", to_string(report.placement));
  Table table({"path", "width", "parameters", "verdict", "certainty", "eps", "place"});
  Shared reasons;
  Shared deciding;
  Shared health;
  for (const NormFinding& n : report.norms) {
    const std::string path = shown(n.path);
    table.add_row({path, n.width > 0 ? std::to_string(n.width) : "?",
                   n.present.empty() ? "none" : shown(fmt::format("{}", fmt::join(n.present, " "))),
                   verdict(n), std::string(to_string(n.certainty)),
                   n.eps ? fmt::format("{}", *n.eps) : "?", n.place.empty() ? "?" : n.place});
    for (const std::string& line : n.reasons) add(reasons, shown(line, 400), path);
    for (const std::string& line : n.would_decide) add(deciding, line, path);
    for (const std::string& line : n.health) add(health, line, path);
  }
  if (!report.norms.empty()) text += table.str();
  const std::size_t count = report.norms.size();
  text += listed("why", reasons, count) + listed("what would decide", deciding, count) +
          listed("unhealthy", health, count);
  for (const std::string& note : report.notes)
    text += fmt::format("\nnote: {}\n", shown(note, 400));
  return text + "\n" + conclusion(report);
}

nlohmann::ordered_json to_json(const Report& report) {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  Json norms = Json::array();
  for (const NormFinding& n : report.norms) {
    norms.push_back({{"path", n.path},
                     {"kind", to_string(n.kind)},
                     {"certainty", to_string(n.certainty)},
                     {"width", n.width},
                     {"parameters", n.present},
                     {"has_weight", n.gain != nullptr},
                     {"has_bias", n.shift != nullptr},
                     {"has_running_stats", n.has_running_stats()},
                     {"weight_offset", n.unit_offset},
                     {"eps", or_null(n.eps)},
                     {"per_head", or_null(n.per_head)},
                     {"trained", or_null(n.trained)},
                     {"placement", n.place.empty() ? Json(nullptr) : Json(n.place)},
                     {"reasons", n.reasons},
                     {"would_decide", n.would_decide},
                     {"health", n.health}});
  }
  const std::string type = report.config.model_type();
  return {{"file", report.list.path},
          {"config", report.config.known() ? Json(report.config.path()) : Json(nullptr)},
          {"model_type", type.empty() ? Json(nullptr) : Json(type)},
          {"architecture",
           report.family == nullptr ? Json(nullptr) : Json(std::string(report.family->name))},
          {"architecture_source",
           report.family == nullptr ? Json(nullptr) : Json(std::string(report.family->source))},
          {"tensors", report.list.tensors.size()},
          {"placement", to_string(report.placement)},
          {"norms", norms},
          {"notes", report.notes}};
}

}  // namespace steady::examples::inspect
