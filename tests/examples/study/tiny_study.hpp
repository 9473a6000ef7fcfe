#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/core/data/files.hpp"
#include "tests/support/programs.hpp"

namespace steady::test {

/// A directory with a plan file, and the programs run in it. Digits and texts are generated ones.
class TinyStudy {
 public:
  explicit TinyStudy(const nlohmann::ordered_json& plan) { write_plan(plan); }

  void write_plan(const nlohmann::ordered_json& plan) const {
    const std::string text = plan.dump();
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    directory_.write("plan.json", Bytes(bytes, bytes + text.size()));
  }
  [[nodiscard]] std::filesystem::path out(const std::string& name = "out") const {
    return directory_.path() / name;
  }
  [[nodiscard]] std::string arguments(const std::string& name = "out") const {
    return "--plan " + (directory_.path() / "plan.json").string() + " --out " + out(name).string() +
           " --data no-such-directory ";
  }
  [[nodiscard]] testing_support::Outcome run(const std::string& name,
                                             const std::string& options = "") const {
    return testing_support::run_program("stability_study", arguments(name) + options);
  }
  [[nodiscard]] testing_support::Outcome report(const std::string& name,
                                                const std::string& options = "") const {
    return testing_support::run_program("report", "--out " + out(name).string() + " " + options);
  }

 private:
  TemporaryDirectory directory_;
};

/// A plan of one question that lists its cells.
inline nlohmann::ordered_json plan_of(const std::vector<nlohmann::ordered_json>& cells,
                                      const std::string& figure = "loss") {
  return {
      {"name", "tiny"},
      {"questions", {{{"id", "only"}, {"title", "Only"}, {"figure", figure}, {"cells", cells}}}}};
}

}  // namespace steady::test
