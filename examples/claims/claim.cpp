#include "examples/claims/claim.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady::examples::claims {
namespace {

constexpr double Infinity = std::numeric_limits<double>::infinity();

/// What one claim gave with each of the seeds.
struct Runs {
  std::vector<Findings> findings;  // one per seed
  std::vector<double> seconds;
};

void run_one(const Claim& claim, std::uint64_t seed, Findings& findings, double& seconds) {
  const auto start = std::chrono::steady_clock::now();
  claim.run(findings, seed);
  seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Row row_of(const Runs& runs, std::size_t index) {
  Row row{.finding = runs.findings.front().items()[index], .min = Infinity, .max = -Infinity};
  row.ok = true;
  double sum = 0;
  for (const Findings& findings : runs.findings) {
    const Finding& item = findings.items()[index];
    sum += item.measured;
    // A NaN must show, and std::min would hide it.
    row.min = item.measured >= row.min ? row.min : item.measured;
    row.max = item.measured <= row.max ? row.max : item.measured;
    row.ok = row.ok && item.band.contains(item.measured) != item.control;
  }
  row.finding.measured = sum / static_cast<double>(runs.findings.size());
  return row;
}

}  // namespace

Band below(double high) { return {-Infinity, high}; }
Band above(double low) { return {low, Infinity}; }
Band around(double expected, double share) {
  const double reach = (expected < 0 ? -expected : expected) * share;
  return {expected - reach, expected + reach};
}

std::string format_number(double value) { return fmt::format("{:.4g}", value); }

std::string to_string(const Band& band) {
  if (band.low == -Infinity) return "< " + format_number(band.high);
  if (band.high == Infinity) return "> " + format_number(band.low);
  if (band.low == band.high) return "= " + format_number(band.low);
  return format_number(band.low) + " .. " + format_number(band.high);
}

void Findings::check(std::string what, std::optional<double> expected, double measured,
                     const Band& band) {
  items_.push_back({std::move(what), expected, measured, band, false});
}

void Findings::control(std::string what, double measured, const Band& band) {
  items_.push_back({std::move(what), std::nullopt, measured, band, true});
}

std::vector<Claim> select_claims(std::span<const std::string> ids) {
  const std::span<const Claim> all = all_claims();
  if (ids.empty()) return {all.begin(), all.end()};
  std::string known;
  for (const Claim& claim : all) known += fmt::format("{}{}", known.empty() ? "" : ", ", claim.id);
  for (const std::string& id : ids) {
    const bool found = std::ranges::any_of(all, [&](const Claim& c) { return c.id == id; });
    STEADY_CHECK(Error, found, "no claim '{}'; known: {}", id, known);
  }
  std::vector<Claim> chosen;
  std::ranges::copy_if(all, std::back_inserter(chosen), [&](const Claim& claim) {
    return std::ranges::find(ids, claim.id) != ids.end();
  });
  return chosen;
}

bool Verdict::ok() const {
  return std::ranges::all_of(rows, [](const Row& row) { return row.ok; });
}

std::vector<Verdict> judge(std::span<const Claim> claims, std::span<const std::uint64_t> seeds) {
  STEADY_CHECK(Error, !seeds.empty(), "judge: needs at least one seed");
  std::vector<Runs> runs(claims.size());
  for (Runs& r : runs) r = {std::vector<Findings>(seeds.size()), std::vector<double>(seeds.size())};
  const auto run = [&](std::size_t claim, std::size_t seed) {
    run_one(claims[claim], seeds[seed], runs[claim].findings[seed], runs[claim].seconds[seed]);
  };
  std::vector<std::pair<std::size_t, std::size_t>> jobs;
  for (std::size_t c = 0; c < claims.size(); ++c) {
    for (std::size_t s = 0; s < seeds.size(); ++s) {
      if (claims[c].alone) {
        run(c, s);
      } else {
        jobs.emplace_back(c, s);
      }
    }
  }
  parallel_for(static_cast<std::int64_t>(jobs.size()), 1, [&](std::int64_t i, std::int64_t) {
    const auto [claim, seed] = jobs[static_cast<std::size_t>(i)];
    run(claim, seed);
  });

  std::vector<Verdict> verdicts;
  for (std::size_t c = 0; c < claims.size(); ++c) {
    Verdict& verdict = verdicts.emplace_back(Verdict{.claim = claims[c], .rows = {}});
    for (std::size_t i = 0; i < runs[c].findings.front().items().size(); ++i) {
      verdict.rows.push_back(row_of(runs[c], i));
    }
    for (const double seconds : runs[c].seconds) verdict.seconds += seconds;
  }
  return verdicts;
}

}  // namespace steady::examples::claims
