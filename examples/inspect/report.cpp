#include "examples/inspect/report.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

#include "examples/inspect/health.hpp"
#include "examples/inspect/judge.hpp"
#include "examples/inspect/placement.hpp"

namespace steady::examples::inspect {
namespace {

std::vector<std::string> names_of(const TensorList& list) {
  std::vector<std::string> names;
  for (const TensorEntry& t : list.tensors) names.push_back(t.name);
  return names;
}

/// More kernels of convolutions than other matrices, at least two.
bool is_convolutional(const TensorList& list) {
  std::size_t kernels = 0;
  std::size_t matrices = 0;
  for (const TensorEntry& t : list.tensors) {
    kernels += t.dims.size() >= 3 ? 1U : 0U;
    matrices += t.dims.size() == 2 ? 1U : 0U;
  }
  return kernels >= 2 && kernels >= matrices;
}

void find_family(Report& report) {
  const std::string model_type = report.config.model_type();
  report.family = model_type.empty() ? nullptr : by_model_type(model_type);
  report.family_by_config = report.family != nullptr;
  if (report.family == nullptr && !model_type.empty()) {
    report.notes.push_back("model_type '" + model_type + "' is not in the table of architectures");
  }
}

/// The path of the module around a stack of blocks, or around a norm outside of one, with its dot.
std::string model_around(const std::string& norm) {
  std::vector<std::size_t> begins{0};
  for (std::size_t dot = norm.find('.'); dot != norm.npos; dot = norm.find('.', dot + 1)) {
    const std::string_view part = std::string_view(norm).substr(begins.back(), dot - begins.back());
    if (begins.size() > 1 && part.find_first_not_of("0123456789") == part.npos) {
      return norm.substr(0, begins[begins.size() - 2]);
    }
    begins.push_back(dot + 1);
  }
  return norm.substr(0, begins.back());
}

/// The family of the names around a norm: a file can hold several models. Norms outside of the
/// blocks stand up to two modules deeper than these.
const Architecture* family_around(const std::string& norm, const std::vector<std::string>& names) {
  std::string around = model_around(norm);
  for (int up = 0; up <= 2; ++up) {
    std::vector<std::string> inside;
    for (const std::string& name : names) {
      if (name.starts_with(around)) inside.push_back(name);
    }
    if (const Architecture* family = by_names(inside)) return family;
    if (around.empty()) return nullptr;
    const std::size_t dot = around.rfind('.', around.size() - 2);
    around.resize(dot == around.npos ? 0 : dot + 1);
  }
  return nullptr;
}

/// Sets the families of the norms, and the report's own when there is just one.
void find_families(Report& report) {
  const std::vector<std::string> names = names_of(report.list);
  std::map<std::string, const Architecture*> known;
  std::set<const Architecture*> all;
  for (NormFinding& norm : report.norms) {
    norm.family = report.family;
    if (!report.family_by_config) {
      const auto [at, fresh] = known.try_emplace(model_around(norm.path), nullptr);
      if (fresh) at->second = family_around(norm.path, names);
      norm.family = at->second;
    }
    if (norm.family != nullptr) all.insert(norm.family);
  }
  if (all.size() == 1) report.family = *all.begin();
}

void add_notes(Report& report) {
  if (report.list.ignored_bytes > 0) {
    report.notes.push_back(std::to_string(report.list.ignored_bytes) +
                           " bytes behind the last tensor belong to none");
  }
  for (const std::string& reason : report.list.unread) report.notes.push_back(reason);
  if (report.norms.empty()) {
    report.notes.emplace_back(
        "no tensors of a normalization: the model has none, or norms that learn nothing, such as "
        "OLMo's LayerNorm; a config.json with model_type would decide");
  }
}

}  // namespace

Report inspect_checkpoint(const std::filesystem::path& path, const std::filesystem::path& config) {
  Report report;
  report.list = list_tensors(path);
  std::error_code error;
  const std::filesystem::path beside = report.list.folder / "config.json";
  if (!config.empty()) {
    report.config = Config::read(config);
  } else if (std::filesystem::exists(beside, error)) {
    report.config = Config::read(beside);
  }
  find_family(report);
  const Evidence evidence{.list = report.list,
                          .config = report.config,
                          .family = report.family,
                          .convolutional = is_convolutional(report.list)};
  report.norms = find_norms(report.list);
  find_families(report);
  for (NormFinding& norm : report.norms) judge(norm, evidence);
  if (report.norms.empty() && report.family_by_config) {
    report.norms = norms_without_tensors(evidence);
    std::ranges::sort(report.norms, {}, &NormFinding::path);
  }
  report.placement = find_places(report.norms, report.family);
  check_health(report.norms, report.config);
  add_notes(report);
  return report;
}

}  // namespace steady::examples::inspect
