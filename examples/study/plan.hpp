#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

/// What a study trains: a plan of questions, each a grid of cells.
namespace steady::examples {

/// One training run: everything that decides its numbers. The JSON keys of a plan file are the
/// names of the members.
struct Cell {
  std::string model = "cnn";      ///< see model_names()
  std::string norm = "batch";     ///< a NormSpec
  std::string placement = "pre";  ///< of the norms of a transformer
  std::int64_t depth = 4;         ///< layers (mlp, cnn) or blocks (residual ones, transformer)
  std::int64_t width = 16;        ///< features or channels of every layer
  std::int64_t batch = 64;        ///< samples (sequences for a transformer) per step
  std::int64_t steps = 100;       ///< updates; 0 only looks at the initial model
  std::string optimizer = "sgd";  ///< sgd (momentum 0.9), plain_sgd, adamw
  double lr = 0.01;               ///< largest learning rate, constant after the warm-up
  std::int64_t warmup = 0;        ///< updates of a linear climb to lr
  std::string init = "he";  ///< he (normal) or torch (the layers' own default), of mlp and cnn
  double init_scale = 1;    ///< factor on the initial weights of role Weight
  std::string input = "standardize";  ///< raw, minmax or standardize: how features are scaled
  std::uint64_t seed = 1;             ///< of weights, data order and generated data
  bool curvature = false;             ///< also sharpness and predictiveness at the initial model

  friend bool operator==(const Cell&, const Cell&) = default;
};

/// Every member as JSON.
[[nodiscard]] nlohmann::ordered_json to_json(const Cell& cell);

/// The reverse; members that are left out have their defaults. Throws Error as parse_plan.
[[nodiscard]] Cell parse_cell(std::string_view json);

/// A file name that tells the cells apart: what a reader looks for, then a hash of all members.
[[nodiscard]] std::string cell_id(const Cell& cell);

/// One or two members that vary, and everything else fixed.
struct Question {
  std::string id;                 ///< file names begin with it
  std::string title;              ///< one line
  std::string text;               ///< what the figure shows, one or two sentences
  std::string figure;             ///< see figure_names()
  std::vector<std::string> vary;  ///< members that the cells differ in
  std::vector<Cell> cells;
};

struct Plan {
  std::string name;
  std::vector<Question> questions;

  /// The different cells of all questions in order: a cell that two questions share runs once.
  [[nodiscard]] std::vector<Cell> cells() const;
};

/// The plan with every cell written out, as parse_plan reads it.
[[nodiscard]] nlohmann::ordered_json to_json(const Plan& plan);

[[nodiscard]] std::vector<std::string_view> model_names();
/// What the report can draw for a question.
[[nodiscard]] std::vector<std::string_view> figure_names();

/// Names of the plans that are built in.
[[nodiscard]] std::vector<std::string_view> plan_names();

/// A built-in plan by name, or a plan file by path. Throws Error naming the plan and its choices.
[[nodiscard]] Plan load_plan(const std::string& name_or_path);

/// A plan from JSON text:
///   {"name": "mine", "questions": [{"id": "depth", "title": "...", "text": "...",
///     "figure": "profile", "base": {"model": "cnn", "steps": 50},
///     "vary": {"norm": ["none", "batch"], "depth": [4, 8]}}]}
/// `base` sets members of Cell; every combination of `vary` becomes a cell, the first key slowest.
/// A key of `vary` may join members: {"placement, warmup": [["pre", 0], ["post", 100]]}. In place
/// of `base` and `vary`, `cells` may list cells, with the names of `varied` members beside it.
/// Throws Error naming question and key for anything unknown, of a wrong type or out of range.
[[nodiscard]] Plan parse_plan(std::string_view json, const std::string& source);

}  // namespace steady::examples
