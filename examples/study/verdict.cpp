#include "examples/study/verdict.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "examples/common/table.hpp"

namespace steady::examples {
namespace {

struct Group {
  std::string model;
  std::string choice;
  std::vector<const Result*> profile;    // of questions over depth
  std::vector<const Result*> stability;  // of questions over the learning rate
};

std::string choice_of(const Cell& cell) {
  if (cell.model != "transformer" || cell.norm == "none") return cell.norm;
  return cell.norm + ", " + cell.placement;
}

bool varies(const Question& q, const char* key) {
  return std::ranges::find(q.vary, key) != q.vary.end();
}

std::vector<Group> groups_of(const StudyResults& study) {
  std::vector<Group> groups;
  for (const Answer& answer : study.answers) {
    const bool profile = answer.question.figure == "profile";
    const bool stability = answer.question.figure == "stability" && varies(answer.question, "lr");
    if (!profile && !stability) continue;
    for (const Result& r : answer.results) {
      const std::string choice = choice_of(r.cell);
      auto at = std::ranges::find_if(
          groups, [&](const Group& g) { return g.model == r.cell.model && g.choice == choice; });
      if (at == groups.end()) at = groups.insert(groups.end(), Group{r.cell.model, choice, {}, {}});
      (profile ? at->profile : at->stability).push_back(&r);
    }
  }
  return groups;
}

/// Depths at which every run trained, and all depths.
std::string trained_depths(const std::vector<const Result*>& results) {
  std::set<std::int64_t> all;
  std::set<std::int64_t> failed;
  for (const Result* r : results) {
    all.insert(r->cell.depth);
    if (!r->trained()) failed.insert(r->cell.depth);
  }
  if (failed.empty()) return fmt::format("all ({})", fmt::join(all, ", "));
  std::vector<std::int64_t> good;
  std::ranges::set_difference(all, failed, std::back_inserter(good));
  if (good.empty()) return fmt::format("none of {}", fmt::join(all, ", "));
  return fmt::format("{} of {}", fmt::join(good, ", "), fmt::join(all, ", "));
}

std::string in_words(const Result& deepest) {
  const Profile gradients = deepest.flow(0);
  const double ratio = gradients.first_to_last();
  const auto layers = static_cast<double>(gradients.layer.size());
  const double per_layer = std::pow(ratio, 1 / std::max(1.0, layers - 1));
  std::string flow = "gradients even over depth";
  if (gradients.layer.size() < 2) {
    flow = "no gradients to compare";
  } else if (ratio < 0.01) {
    flow = fmt::format("gradients vanish towards the input, x{:.2f} per layer", per_layer);
  } else if (ratio > 100) {
    flow = fmt::format("gradients explode towards the input, x{:.2f} per layer", per_layer);
  } else if (ratio < 0.2 || ratio > 5) {
    flow = fmt::format("gradients lean {} the input", ratio > 1 ? "towards" : "away from");
  } else if (!std::isfinite(ratio)) {
    flow = "gradients are not finite";
  }
  const std::string depth =
      fmt::format("depth {} in {} steps", deepest.cell.depth, deepest.cell.steps);
  if (deepest.trained()) return fmt::format("trains at {}; {}", depth, flow);
  if (deepest.status == "stalled") return fmt::format("learns nothing at {}; {}", depth, flow);
  return fmt::format("{} at {}; {}", deepest.status, depth, flow);
}

Verdict verdict_of(const Group& group) {
  Verdict v{group.model, group.choice, "-", NAN, NAN, 0, NAN, NAN, ""};
  const Result* deepest = nullptr;
  const Result* best = nullptr;
  for (const Result* r : group.profile) {
    if (deepest == nullptr || r->cell.depth > deepest->cell.depth) deepest = r;
    if (r->trained() && (best == nullptr || r->cell.depth > best->cell.depth)) best = r;
  }
  if (deepest != nullptr) {
    v.trained = trained_depths(group.profile);
    v.first_to_last = deepest->flow(0).first_to_last();
    v.depth = deepest->cell.depth;
    v.words = in_words(*deepest);
  }
  if (best != nullptr) v.final_loss = best->number("final_loss");
  for (const Result* r : group.stability) {
    v.lr_tried = std::isnan(v.lr_tried) ? r->cell.lr : std::max(v.lr_tried, r->cell.lr);
    if (r->trained() && !(v.largest_lr >= r->cell.lr)) v.largest_lr = r->cell.lr;
  }
  if (!group.stability.empty() && deepest == nullptr) {
    v.words = std::isnan(v.largest_lr)
                  ? "trains at no rate that was tried"
                  : fmt::format("trains up to a learning rate of {:.2g}", v.largest_lr);
  }
  return v;
}

std::string or_dash(double value, const char* format) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "-";
}

}  // namespace

std::vector<Verdict> make_verdicts(const StudyResults& results) {
  std::vector<Verdict> verdicts;
  for (const Group& group : groups_of(results)) verdicts.push_back(verdict_of(group));
  return verdicts;
}

std::string verdict_table(const std::vector<Verdict>& verdicts) {
  Table table({"model", "norm", "trained at depth", "final loss", "gradient flow first/last",
               "largest stable lr", "verdict"});
  for (const Verdict& v : verdicts) {
    table.add_row({v.model, v.choice, v.trained, or_dash(v.final_loss, "{:.3f}"),
                   or_dash(v.first_to_last, "{:.3g}"),
                   std::isfinite(v.lr_tried) && std::isnan(v.largest_lr)
                       ? "none"
                       : or_dash(v.largest_lr, "{:.2g}"),
                   v.words});
  }
  return table.str();
}

std::string gradient_chart(const StudyResults& results) {
  constexpr std::array Blocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string chart;
  for (const Answer& answer : results.answers) {
    if (answer.question.figure != "profile" || answer.results.empty()) continue;
    double low = std::numeric_limits<double>::infinity();
    double high = -std::numeric_limits<double>::infinity();
    std::vector<std::pair<std::string, Profile>> lines;
    const std::vector<const Result*> deepest = answer.deepest();
    for (const Result* r : deepest) {
      lines.emplace_back(choice_of(r->cell), r->flow(0));
      for (const double value : lines.back().second.value) {
        if (!(value > 0) || !std::isfinite(value)) continue;
        low = std::min(low, std::log10(value));
        high = std::max(high, std::log10(value));
      }
    }
    if (low > high) continue;
    chart += fmt::format(
        "\n{}, depth {}: gradient flow from the first layer to the last, {:.0e} to "
        "{:.0e}\n",
        answer.question.title, deepest.front()->cell.depth, std::pow(10, low), std::pow(10, high));
    for (const auto& [name, profile] : lines) {
      std::string bars;
      for (const double value : profile.value) {
        if (!(value > 0) || !std::isfinite(value)) {
          bars += value == 0 ? " " : "!";
          continue;
        }
        const double share = (std::log10(value) - low) / std::max(1e-9, high - low);
        bars += Blocks[static_cast<std::size_t>(std::lround(share * (Blocks.size() - 1)))];
      }
      chart += fmt::format("  {:<18} {}\n", name, bars);
    }
  }
  return chart;
}

}  // namespace steady::examples
