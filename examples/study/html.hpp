#pragma once

#include <string>
#include <vector>

#include "examples/study/figures.hpp"
#include "examples/study/verdict.hpp"

namespace steady::examples {

/// A question with its figures.
struct Section {
  Question question;
  std::vector<Figure> figures;
};

/// The report as one HTML page: the verdicts first, then the figures, then definitions and what
/// computed. No request leaves it; it reads well on light and dark pages and at a phone's width.
/// `command` remakes the study; figures are remade by it and --only.
[[nodiscard]] std::string html_report(const StudyResults& results,
                                      const std::vector<Verdict>& verdicts,
                                      const std::vector<Section>& sections,
                                      const std::string& study_command,
                                      const std::string& report_command);

}  // namespace steady::examples
