#include "examples/study/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <steadygrad/core/error.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <steadygrad/layers/residual.hpp>

#include "examples/study/builtin_plans.hpp"

namespace steady::examples {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array Models{"mlp",          "residual_mlp", "cnn",
                            "residual_cnn", "strided_cnn",  "transformer"};
constexpr std::array Optimizers{"sgd", "plain_sgd", "adamw"};
constexpr std::array Inits{"he", "torch"};
constexpr std::array Inputs{"raw", "minmax", "standardize"};
constexpr std::array Figures{"profile", "loss", "stability", "batch", "growth", "curvature"};
constexpr std::size_t MostCells = 2000;
constexpr std::size_t MostBytes = std::size_t{1} << 22U;  // MostCells written out are a quarter

/// A value or name for a message: as JSON, so without control characters, and short.
std::string shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', true);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

template <std::size_t N>
void check_choice(std::string_view key, const std::string& value,
                  const std::array<const char*, N>& choices) {
  STEADY_CHECK(Error, std::ranges::find(choices, value) != choices.end(), "{}: one of {}; got {}",
               key, fmt::join(choices, ", "), shown(value));
}

std::string text_of(const Json& value) {
  STEADY_CHECK(Error, value.is_string(), "needs text; got {}", shown(value));
  auto text = value.get<std::string>();
  STEADY_CHECK(Error, std::ranges::none_of(text, [](char c) { return c >= 0 && c < ' '; }),
               "needs text without control characters; got {}", shown(value));
  return text;
}

std::int64_t integer_of(const Json& value, std::int64_t low, std::int64_t high) {
  STEADY_CHECK(Error, value.is_number_integer(), "needs an integer; got {}", shown(value));
  const bool beyond = value.is_number_unsigned() &&
                      value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  const std::int64_t n = beyond ? INT64_MAX : value.get<std::int64_t>();
  STEADY_CHECK(Error, !beyond && n >= low && n <= high, "needs an integer in [{}, {}]; got {}", low,
               high, shown(value));
  return n;
}

double number_of(const Json& value, double low, double high) {
  STEADY_CHECK(Error, value.is_number(), "needs a number; got {}", shown(value));
  const auto x = value.get<double>();
  STEADY_CHECK(Error, x >= low && x <= high, "needs a number in [{}, {}]; got {}", low, high,
               shown(value));
  return x;
}

/// One member of Cell: its key, how it is read and how it is written.
struct Member {
  const char* key;
  std::function<void(Cell&, const Json&)> read;
  std::function<Json(const Cell&)> write;
};

template <class T>
Member member(const char* key, T Cell::*field, std::function<T(const Json&)> convert) {
  return {key, [=](Cell& cell, const Json& value) { cell.*field = convert(value); },
          [=](const Cell& cell) { return Json(cell.*field); }};
}

Member integer(const char* key, std::int64_t Cell::*field, std::int64_t low, std::int64_t high) {
  return member<std::int64_t>(key, field,
                              [=](const Json& value) { return integer_of(value, low, high); });
}

Member real(const char* key, double Cell::*field, double low, double high) {
  return member<double>(key, field, [=](const Json& value) { return number_of(value, low, high); });
}

template <std::size_t N>
Member choice(const char* key, std::string Cell::*field,
              const std::array<const char*, N>& choices) {
  return member<std::string>(key, field, [&choices](const Json& value) {
    std::string text = text_of(value);
    check_choice("value", text, choices);
    return text;
  });
}

const std::vector<Member>& members() {
  static const std::vector<Member> all{
      choice("model", &Cell::model, Models),
      member<std::string>(
          "norm", &Cell::norm,
          [](const Json& value) { return to_string(NormSpec::parse(text_of(value))); }),
      member<std::string>(
          "placement", &Cell::placement,
          [](const Json& value) { return to_string(Placement::parse(text_of(value))); }),
      integer("depth", &Cell::depth, 1, 1000),
      integer("width", &Cell::width, 1, 8192),
      integer("batch", &Cell::batch, 1, 65536),
      integer("steps", &Cell::steps, 0, 10'000'000),
      choice("optimizer", &Cell::optimizer, Optimizers),
      real("lr", &Cell::lr, 0, 1e6),
      integer("warmup", &Cell::warmup, 0, 10'000'000),
      choice("init", &Cell::init, Inits),
      real("init_scale", &Cell::init_scale, 0, 1e6),
      choice("input", &Cell::input, Inputs),
      member<std::uint64_t>("seed", &Cell::seed,
                            [](const Json& value) {
                              return static_cast<std::uint64_t>(integer_of(value, 0, INT64_MAX));
                            }),
      member<bool>("curvature", &Cell::curvature,
                   [](const Json& value) {
                     STEADY_CHECK(Error, value.is_boolean(), "needs true or false; got {}",
                                  shown(value));
                     return value.get<bool>();
                   }),
  };
  return all;
}

void set_member(Cell& cell, const std::string& key, const Json& value) {
  for (const Member& m : members()) {
    if (m.key != key) continue;
    try {
      m.read(cell, value);
    } catch (const Error& error) {
      throw Error(fmt::format("'{}' {}", key, error.what()));
    }
    return;
  }
  std::vector<std::string_view> keys;
  for (const Member& m : members()) keys.emplace_back(m.key);
  throw Error(fmt::format("unknown key {}; a cell has {}", shown(key), fmt::join(keys, ", ")));
}

/// "placement, warmup" as {"placement", "warmup"}.
std::vector<std::string> joined_keys(const std::string& key) {
  std::vector<std::string> keys;
  std::istringstream parts(key);
  for (std::string part; std::getline(parts, part, ',');) {
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    keys.push_back(part);
  }
  return keys;
}

/// Every cell once for each value of one key of `vary`.
std::vector<Cell> vary(const std::vector<Cell>& cells, const std::string& key, const Json& values) {
  STEADY_CHECK(Error, values.is_array() && !values.empty(), "'{}' needs a list of values; got {}",
               key, shown(values));
  STEADY_CHECK(Error, cells.size() * values.size() <= MostCells, "'{}' makes more than {} cells",
               key, MostCells);
  const std::vector<std::string> keys = joined_keys(key);
  std::vector<Cell> result;
  for (const Cell& cell : cells) {
    for (const Json& value : values) {
      Cell& varied = result.emplace_back(cell);
      if (keys.size() < 2) {
        set_member(varied, keys.empty() ? key : keys[0], value);
        continue;
      }
      STEADY_CHECK(Error, value.is_array() && value.size() == keys.size(),
                   "'{}' needs lists of {} values; got {}", key, keys.size(), shown(value));
      for (std::size_t i = 0; i < keys.size(); ++i) set_member(varied, keys[i], value[i]);
    }
  }
  return result;
}

bool is_identifier(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

void check_keys(const Json& object, const std::vector<std::string_view>& known) {
  for (const auto& [key, value] : object.items()) {
    STEADY_CHECK(Error, std::ranges::find(known, key) != known.end(),
                 "unknown key {}; known are {}", shown(key), fmt::join(known, ", "));
  }
}

Cell cell_of(const Json& json) {
  STEADY_CHECK(Error, json.is_object(), "a cell is an object; got {}", shown(json));
  Cell cell;
  for (const auto& [key, value] : json.items()) set_member(cell, key, value);
  return cell;
}

Json parse_json(std::string_view text, const std::string& source) {
  int depth = 0;
  try {
    return Json::parse(text, [&](int at, Json::parse_event_t, Json&) {
      depth = std::max(depth, at);
      STEADY_CHECK(Error, depth < 16, "{}: nested too deeply for a plan", source);
      return true;
    });
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{}: not JSON: {}", source, error.what()));
  }
}

/// `cells` and `varied` of a question that lists its cells.
void read_cells(const Json& json, Question& q) {
  STEADY_CHECK(
      Error,
      json["cells"].is_array() && !json["cells"].empty() && json["cells"].size() <= MostCells,
      "'cells' is a list of 1 to {} cells", MostCells);
  STEADY_CHECK(Error, !json.contains("base") && !json.contains("vary"),
               "has 'cells' or 'base' and 'vary', not both");
  for (const Json& cell : json["cells"]) q.cells.push_back(cell_of(cell));
  if (!json.contains("varied")) return;
  STEADY_CHECK(Error, json["varied"].is_array(), "'varied' is a list of keys");
  const Json known = to_json(Cell{});
  for (const Json& key : json["varied"]) {
    q.vary.push_back(text_of(key));
    STEADY_CHECK(Error, known.contains(q.vary.back()), "'varied': unknown key {}", shown(key));
  }
}

Question parse_question(const Json& json) {
  STEADY_CHECK(Error, json.is_object(), "is an object; got {}", shown(json));
  check_keys(json, {"id", "title", "text", "figure", "base", "vary", "cells", "varied"});
  const auto text = [&](const char* key) {
    STEADY_CHECK(Error, json.contains(key), "needs '{}'", key);
    try {
      return text_of(json[key]);
    } catch (const Error& error) {
      throw Error(fmt::format("'{}' {}", key, error.what()));
    }
  };
  Question q;
  q.id = text("id");
  STEADY_CHECK(Error, is_identifier(q.id),
               "'id' is made of a-z, 0-9, - and _, for it names files; got {}", shown(q.id));
  q.title = text("title");
  q.text = json.contains("text") ? text("text") : "";
  q.figure = text("figure");
  check_choice("'figure'", q.figure, Figures);
  if (json.contains("cells")) {
    read_cells(json, q);
    return q;
  }
  q.cells = {json.contains("base") ? cell_of(json["base"]) : Cell{}};
  if (json.contains("vary")) {
    STEADY_CHECK(Error, json["vary"].is_object(), "'vary' is an object; got {}",
                 shown(json["vary"]));
    for (const auto& [key, values] : json["vary"].items()) {
      q.cells = vary(q.cells, key, values);
      std::ranges::copy(joined_keys(key), std::back_inserter(q.vary));
    }
  }
  return q;
}

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1099511628211ULL;
  }
  return hash;
}

}  // namespace

Json to_json(const Cell& cell) {
  Json json;
  for (const Member& m : members()) json[m.key] = m.write(cell);
  return json;
}

Json to_json(const Plan& plan) {
  Json questions = Json::array();
  for (const Question& q : plan.questions) {
    Json cells = Json::array();
    for (const Cell& cell : q.cells) cells.push_back(to_json(cell));
    questions.push_back({{"id", q.id},
                         {"title", q.title},
                         {"text", q.text},
                         {"figure", q.figure},
                         {"varied", q.vary},
                         {"cells", std::move(cells)}});
  }
  return {{"name", plan.name}, {"questions", std::move(questions)}};
}

Cell parse_cell(std::string_view json) { return cell_of(parse_json(json, "cell")); }

std::string cell_id(const Cell& cell) {
  const auto word = [](const std::string& text) {
    std::string safe = text.substr(0, 24);
    std::ranges::replace_if(
        safe, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
    return safe;
  };
  return fmt::format("{}-{}-{}-d{}-w{}-b{}-lr{:g}-s{}-{:08x}", cell.model, word(cell.norm),
                     word(cell.placement), cell.depth, cell.width, cell.batch, cell.lr, cell.seed,
                     static_cast<std::uint32_t>(fnv1a(to_json(cell).dump())));
}

std::vector<Cell> Plan::cells() const {
  std::vector<Cell> all;
  std::set<std::string> seen;
  for (const Question& q : questions) {
    for (const Cell& cell : q.cells) {
      if (seen.insert(cell_id(cell)).second) all.push_back(cell);
    }
  }
  return all;
}

std::vector<std::string_view> model_names() { return {Models.begin(), Models.end()}; }
std::vector<std::string_view> figure_names() { return {Figures.begin(), Figures.end()}; }

Plan parse_plan(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  STEADY_CHECK(Error, json.is_object(), "{}: a plan is a JSON object", source);
  Plan plan;
  try {
    check_keys(json, {"name", "questions"});
    STEADY_CHECK(Error, json.contains("name") && json["name"].is_string(), "needs a 'name'");
    plan.name = json["name"].get<std::string>();
    STEADY_CHECK(
        Error,
        json.contains("questions") && json["questions"].is_array() && !json["questions"].empty(),
        "needs a list of 'questions'");
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", source, error.what()));
  }
  std::set<std::string> ids;
  std::size_t cells = 0;
  for (const Json& question : json["questions"]) {
    const std::size_t number = plan.questions.size() + 1;
    try {
      plan.questions.push_back(parse_question(question));
      STEADY_CHECK(Error, ids.insert(plan.questions.back().id).second, "the id '{}' is taken",
                   plan.questions.back().id);
      cells += plan.questions.back().cells.size();
      STEADY_CHECK(Error, cells <= MostCells, "the plan has more than {} cells", MostCells);
    } catch (const Error& error) {
      throw Error(fmt::format("{}: question {}: {}", source, number, error.what()));
    }
  }
  return plan;
}

std::vector<std::string_view> plan_names() {
  std::vector<std::string_view> names;
  for (const BuiltinPlan& plan : builtin_plans()) names.push_back(plan.name);
  return names;
}

Plan load_plan(const std::string& name_or_path) {
  for (const BuiltinPlan& plan : builtin_plans()) {
    if (plan.name == name_or_path) return parse_plan(plan.json, name_or_path);
  }
  std::ifstream in(name_or_path, std::ios::binary);
  STEADY_CHECK(Error, in && std::filesystem::is_regular_file(name_or_path),
               "'{}' is neither a plan ({}) nor a file that can be read", name_or_path,
               fmt::join(plan_names(), ", "));
  std::string text(MostBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  STEADY_CHECK(Error, text.size() <= MostBytes, "{}: larger than a plan can be ({} bytes)",
               name_or_path, MostBytes);
  return parse_plan(text, name_or_path);
}

}  // namespace steady::examples
