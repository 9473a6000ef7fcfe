#pragma once

#include <string>
#include <vector>

#include "examples/study/results.hpp"

namespace steady::examples {

/// One choice of norm and place on one kind of model, over all questions of a study.
struct Verdict {
  std::string model;
  std::string choice;        ///< "layer, post"
  std::string trained;       ///< depths that trained, out of those tried
  double final_loss = 0;     ///< mean of the last 10 steps, deepest run that trained; NaN: none
  double first_to_last = 0;  ///< gradient flow at the initial model, deepest run
  std::int64_t depth = 0;    ///< of that run
  double largest_lr = 0;     ///< largest stable learning rate where it was asked for; NaN: not
  double lr_tried = 0;       ///< largest rate that was tried; NaN: not asked for
  std::string words;         ///< what that means
};

/// In the order in which the plan has the choices.
[[nodiscard]] std::vector<Verdict> make_verdicts(const StudyResults& results);

/// The table for a terminal.
[[nodiscard]] std::string verdict_table(const std::vector<Verdict>& verdicts);

/// Gradient flow against depth as a line of blocks per choice, for every profile question.
[[nodiscard]] std::string gradient_chart(const StudyResults& results);

}  // namespace steady::examples
