#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "examples/inspect/config.hpp"
#include "examples/inspect/norm_finding.hpp"

namespace steady::examples::inspect {

/// What a checkpoint says about its norms.
struct Report {
  TensorList list;  ///< the findings point into it
  Config config;
  const Architecture* family = nullptr;
  bool family_by_config = false;
  Placement placement = Placement::Unknown;
  std::vector<NormFinding> norms;  ///< sorted by path
  std::vector<std::string> notes;
};

/// Looks at a checkpoint (see list_tensors). Without `config` a config.json beside it is taken when
/// there is one. Throws IoError.
[[nodiscard]] Report inspect_checkpoint(const std::filesystem::path& path,
                                        const std::filesystem::path& config = {});

/// A table with a line per norm, then the reasons, what would decide, what is unhealthy, and one
/// sentence of conclusion.
[[nodiscard]] std::string to_text(const Report& report);
[[nodiscard]] nlohmann::ordered_json to_json(const Report& report);

}  // namespace steady::examples::inspect
