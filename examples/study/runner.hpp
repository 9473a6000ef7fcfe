#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "examples/common/progress.hpp"
#include "examples/study/plan.hpp"

namespace steady::examples {

struct StudyOptions {
  std::filesystem::path out = "study";  ///< cells go to out/cells
  int jobs = 1;                         ///< cells at a time, each a process of one thread ...
  int threads = 1;                      ///< ... or of this many
  bool force = false;                   ///< run finished cells again
  std::string data = "data";            ///< directory of MNIST and texts
  ProgressMode progress = ProgressMode::Auto;
};

struct StudySummary {
  int kept = 0;    ///< finished by an earlier run, trained or not, but not failed
  int ran = 0;     ///< finished now
  int failed = 0;  ///< of those that ran: ended by an error or a signal; recorded as such
};

/// The log of a cell: out/cells/<cell_id>.h5. It appears when the cell has ended; while it runs the
/// log grows as <cell_id>.partial.h5.
[[nodiscard]] std::filesystem::path cell_file(const std::filesystem::path& out, const Cell& cell);

/// Runs the cells of a plan that have no log yet or failed, each in a process of its own (this
/// program with --run-cell), so that one that crashes is a result like any other. A cell that
/// failed runs again because its reason may be gone (memory, a signal); one that diverged is kept.
/// The plan is written to out/plan.json. Throws IoError when `out` cannot be written or another
/// study holds it, and Stopped, its processes ended, on SIGINT and SIGTERM: cells that were running
/// begin again the next time. With several ranks each runs its share of the cells, every size-th:
/// the logs are those of one process, and `out` is a directory that all ranks see.
StudySummary run_study(const Plan& plan, const StudyOptions& options);

/// Makes this process end as soon as the process `parent`, which started it, does.
void end_with_parent(std::int64_t parent);

/// Trains one cell and writes its log; what the processes do.
void run_cell(const Cell& cell, const std::filesystem::path& file, const std::string& data);

/// Records a cell that could not be run.
void write_failed_cell(const Cell& cell, const std::filesystem::path& file,
                       const std::string& reason);

}  // namespace steady::examples
