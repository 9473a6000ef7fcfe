// Do published results about normalization hold in this library, on two cores, in minutes?
//
//   build/bin/paper_claims                       # every claim, seeds 0, 1, 2: about two minutes
//   build/bin/paper_claims --seeds 3 --seed 100  # with the seeds 100, 101 and 102
//   build/bin/paper_claims --only rank_collapse --only xiong_ratio --json claims.json
//
// Every claim is one experiment per seed. A row is a number: what the paper's formula says, what
// was measured (mean [min .. max] over the seeds) and the band in which it has to be with every
// seed. Rows that begin with `not:` are negative controls, variants for which the claim is false:
// they have to miss their band, or the check would prove nothing. Expected as the last line:
//   18 claims hold, 0 miss; every one of .. controls misses its band as it must.
// Exit code 0 then, 1 when a claim misses or a control does not, 2 for a bad option. What each
// claim is, its configuration and why its band is what it is: examples/claims/README.md.

#include <iostream>

#include "examples/claims/claim.hpp"
#include "examples/common/cli.hpp"
#include "examples/common/json_file.hpp"
#include "examples/common/table.hpp"

namespace {

using namespace steady;
using namespace steady::examples;
using namespace steady::examples::claims;

std::string measured(const Row& row, std::size_t seeds) {
  const std::string mean = format_number(row.finding.measured);
  if (seeds == 1) return mean;
  return fmt::format("{} [{} .. {}]", mean, format_number(row.min), format_number(row.max));
}

std::string verdict_of(const Row& row) {
  if (row.finding.control) return row.ok ? "misses, as it must" : "IN THE BAND";
  return row.ok ? "ok" : "MISS";
}

Table table_of(const std::vector<Verdict>& verdicts, std::size_t seeds) {
  Table table({"claim", "paper", "what", "expected", "measured", "band", "verdict"});
  for (const Verdict& verdict : verdicts) {
    bool first = true;
    for (const Row& row : verdict.rows) {
      const Finding& f = row.finding;
      table.add_row({first ? std::string(verdict.claim.id) : "",
                     first ? std::string(verdict.claim.paper) : "",
                     (f.control ? "not: " : "") + f.what,
                     f.expected.has_value() ? format_number(*f.expected) : "", measured(row, seeds),
                     to_string(f.band), verdict_of(row)});
      first = false;
    }
  }
  return table;
}

nlohmann::json json_of(const std::vector<Verdict>& verdicts,
                       const std::vector<std::uint64_t>& seeds) {
  nlohmann::json claims = nlohmann::json::array();
  for (const Verdict& verdict : verdicts) {
    nlohmann::json checks = nlohmann::json::array();
    nlohmann::json controls = nlohmann::json::array();
    for (const Row& row : verdict.rows) {
      const Finding& f = row.finding;
      nlohmann::json item{{"what", f.what}, {"mean", f.measured}, {"min", row.min},
                          {"max", row.max}, {"low", f.band.low},  {"high", f.band.high},
                          {"ok", row.ok}};
      if (!f.control) {
        item["expected"] = f.expected.has_value() ? nlohmann::json(*f.expected) : nullptr;
      }
      (f.control ? controls : checks).push_back(std::move(item));
    }
    claims.push_back({{"id", verdict.claim.id},
                      {"paper", verdict.claim.paper},
                      {"claim", verdict.claim.sentence},
                      {"ok", verdict.ok()},
                      {"seconds", verdict.seconds},
                      {"checks", checks},
                      {"controls", controls}});
  }
  return {{"seeds", seeds}, {"claims", claims}};
}

/// The conclusion; returns the exit code.
int conclude(const std::vector<Verdict>& verdicts) {
  int misses = 0;
  int controls = 0;
  int passing = 0;
  for (const Verdict& verdict : verdicts) {
    bool holds = true;
    for (const Row& row : verdict.rows) {
      controls += row.finding.control ? 1 : 0;
      passing += row.finding.control && !row.ok ? 1 : 0;
      holds = holds && (row.ok || row.finding.control);
    }
    misses += holds ? 0 : 1;
  }
  const std::string about =
      passing == 0
          ? fmt::format("every one of {} controls misses its band as it must", controls)
          : fmt::format("{} of {} controls are in the band they must miss", passing, controls);
  fmt::print("{} claims hold, {} miss; {}.\n", static_cast<int>(verdicts.size()) - misses, misses,
             about);
  return misses == 0 && passing == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measures what papers on normalization claim, with a negative control each."};
  std::vector<std::string> only;
  std::string json_path;
  std::int64_t count = 3;
  std::int64_t first = 0;
  app.add_option("--only", only, "only this claim; may be repeated")->type_name("ID");
  app.add_option("--json", json_path, "write the table to this file")->type_name("FILE");
  add_number<std::int64_t>(app, "--seeds", count, "number of seeds", 1, 1000);
  add_number<std::int64_t>(app, "--seed", first, "the first seed; the others follow it", 0,
                           std::int64_t{1} << 40);
  return run_program(app, argc, argv, [&] {
    const auto chosen = checked_option("--only", [&] { return select_claims(only); });
    const JsonFile json(json_path);
    std::vector<std::uint64_t> seeds;
    for (std::int64_t i = 0; i < count; ++i) {
      seeds.push_back(static_cast<std::uint64_t>(first + i));
    }
    const std::vector<Verdict> verdicts = judge(chosen, seeds);
    std::cout << table_of(verdicts, seeds.size()) << '\n' << std::flush;
    json.write(json_of(verdicts, seeds));
    return conclude(verdicts);
  });
}
