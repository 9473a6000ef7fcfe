#include "examples/study/program.hpp"

#include <cstdio>
#include <steadygrad/steadygrad.hpp>
#include <string>

#include "examples/common/cli.hpp"
#include "examples/study/runner.hpp"

namespace steady::examples {
namespace {

void list(const Plan& plan) {
  for (const Question& q : plan.questions) {
    std::printf("%s: %s (%zu cells)\n", q.id.c_str(), q.title.c_str(), q.cells.size());
    for (const Cell& cell : q.cells) std::printf("  %s\n", cell_id(cell).c_str());
  }
}

}  // namespace

int stability_study(int argc, char** argv) {
  StudyOptions o;
  o.jobs = num_threads();
  std::string plan_name = "quick";
  std::string out = "study";
  std::string progress = "auto";
  std::string cell;
  std::int64_t parent = 0;
  bool list_only = false;
  CLI::App app{"Trains networks under every choice of norm and watches their gradients."};
  app.add_option("--plan", plan_name, "quick, default, full or a plan file")->capture_default_str();
  app.add_option("--out", out, "directory of the logs and the report")->capture_default_str();
  app.add_option("--data", o.data, "directory of MNIST and texts")->capture_default_str();
  add_number<int>(app, "--jobs", o.jobs, "cells at a time", 1, MaxThreads);
  add_number<int>(app, "--threads", o.threads, "threads of each; changes no number", 1, MaxThreads);
  app.add_flag("--force", o.force, "run finished cells again");
  app.add_flag("--list", list_only, "print the cells and end");
  app.add_option("--progress", progress, "auto, bar, plain or off")->capture_default_str();
  app.add_option("--run-cell", cell, "run one cell, given as JSON")->group("");
  add_number<std::int64_t>(app, "--parent", parent, "end with this process", 0)->group("");
  return run_program(app, argc, argv, [&] {
    o.out = out;
    o.progress = checked_option("--progress", [&] { return parse_progress_mode(progress); });
    if (!cell.empty()) {
      if (parent > 0) end_with_parent(parent);
      set_num_threads(o.threads);
      const Cell one = checked_option("--run-cell", [&] { return parse_cell(cell); });
      run_cell(one, cell_file(o.out, one), o.data);
      return 0;
    }
    const Plan plan = checked_option("--plan", [&] { return load_plan(plan_name); });
    if (list_only) {
      list(plan);
      return 0;
    }
    distributed::check_same_text(distributed::world(), "the plan", to_json(plan).dump(1));
    const StudySummary done = run_study(plan, o);
    std::printf("%d cells run, %d kept from before, %d failed; logs in %s\n", done.ran, done.kept,
                done.failed, (o.out / "cells").c_str());
    return 0;
  });
}

}  // namespace steady::examples
