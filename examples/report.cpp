// Turns the logs of a study into one HTML report about gradient stability, and prints the verdicts.
//
//   build/bin/report --out study                     writes study/report.html and study/figures/
//   build/bin/report --out study --only cnn-depth    one question's figures again
//
// The report is one file without outside requests: the verdict of each choice of norm and place,
// then the figures (gradient against depth, heat maps over steps, losses, maps of what trained),
// each with its definition, what came out, and the command that remakes it. Figures also lie beside
// it as SVG and CSV. Needs gnuplot.
#include <cstdio>
#include <filesystem>
#include <span>
#include <steadygrad/core/error.hpp>
#include <string>

#include "examples/common/cli.hpp"
#include "examples/common/text_file.hpp"
#include "examples/study/gnuplot.hpp"
#include "examples/study/html.hpp"

namespace {

using namespace steady;
using namespace steady::examples;
namespace fs = std::filesystem;

Section make_section(const Answer& answer, const fs::path& directory) {
  Section section{answer.question, make_figures(answer)};
  for (const Figure& f : section.figures) {
    write_text_file(directory / (f.id + ".svg"), standalone_svg(f.svg));
    write_text_file(directory / (f.id + ".csv"), f.csv);
  }
  return section;
}

/// A built-in plan by its name; any other by the copy that the study kept.
std::string plan_argument(const StudyResults& results) {
  for (const std::string_view name : plan_names()) {
    if (name != results.plan.name) continue;
    if (to_json(load_plan(results.plan.name)) == to_json(results.plan)) return results.plan.name;
  }
  return (results.out / "plan.json").string();
}

int report(const fs::path& out, const std::string& only) {
  const StudyResults results = load_results(out);
  const fs::path figures = out / "figures";
  std::error_code error;
  fs::create_directories(figures, error);
  STEADY_CHECK(IoError, !error, "{}: cannot be made: {}", figures.string(), error.message());
  std::vector<Section> sections;
  std::string known;
  for (const Answer& answer : results.answers) {
    known += (known.empty() ? "" : ", ") + answer.question.id;
    if (only.empty() || answer.question.id == only) {
      sections.push_back(make_section(answer, figures));
    }
  }
  STEADY_CHECK(Error, !sections.empty(), "--only: no question '{}' in {}; there are {}", only,
               out.string(), known);
  if (!only.empty()) {
    std::printf("figures of %s: %s\n", only.c_str(), figures.c_str());
    return 0;
  }
  const std::vector<Verdict> verdicts = make_verdicts(results);
  const fs::path page = out / "report.html";
  write_text_file(page, html_report(results, verdicts, sections,
                                    fmt::format("build/bin/stability_study --plan {} --out {}",
                                                plan_argument(results), out.string()),
                                    fmt::format("build/bin/report --out {}", out.string())));
  std::printf("%s%s\n", verdict_table(verdicts).c_str(), gradient_chart(results).c_str());
  if (results.missing > 0) {
    std::printf("%ld cells have no log yet\n", static_cast<long>(results.missing));
  }
  std::printf("report: %s\n", fs::absolute(page).lexically_normal().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string out = "study";
  std::string only;
  CLI::App app{"Turns the logs of a study into a report."};
  app.add_option("--out", out, "directory of the study")->capture_default_str();
  app.add_option("--only", only, "write the figures of this question alone");
  return run_program(app, argc, argv, [&] { return report(out, only); });
}
