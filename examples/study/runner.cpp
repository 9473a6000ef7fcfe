#include "examples/study/runner.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/run_record.hpp>

#include "examples/common/text_file.hpp"

extern char** environ;

namespace steady::examples {
namespace {

namespace fs = std::filesystem;

/// Holds a directory against a second study; the kernel lets go when the process ends.
class DirectoryLock {
 public:
  explicit DirectoryLock(const fs::path& directory)
      : fd_(::open((directory / "lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644)) {
    STEADY_CHECK(IoError, fd_ >= 0, "{}: cannot be written: {}", directory.string(),
                 std::strerror(errno));
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      ::close(fd_);
      throw IoError(fmt::format("{}: another study is running there", directory.string()));
    }
  }
  ~DirectoryLock() { ::close(fd_); }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int fd_;
};

std::string tail_of(const fs::path& file) {
  std::ifstream in(file);
  std::ostringstream all;
  all << in.rdbuf();
  std::string text = all.str();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::size_t line = text.rfind('\n');
  return line == std::string::npos ? text : text.substr(line + 1);
}

std::string ending(int status, const fs::path& errors) {
  if (WIFSIGNALED(status)) return fmt::format("ended by signal {}", WTERMSIG(status));
  const std::string text = tail_of(errors);
  return text.empty() ? fmt::format("exit code {}", WEXITSTATUS(status)) : text;
}

/// Whether an earlier run left a result there. A log that cannot be read is none.
bool is_finished(const fs::path& file) {
  if (!fs::exists(file)) return false;
  try {
    const RunRecord run = read_run(file, [](const SeriesPath&) { return false; });
    const hdf5::Value* status = find(run.results, "status");
    return run.complete && status != nullptr && hdf5::to_string(*status) != "failed";
  } catch (const Error&) {
    return false;
  }
}

/// The processes of a study.
class Workers {
 public:
  explicit Workers(const StudyOptions& options) : o_(options) {}

  [[nodiscard]] bool full() const { return running_.size() >= static_cast<std::size_t>(o_.jobs); }
  [[nodiscard]] bool empty() const { return running_.empty(); }

  void start(const Cell& cell) {
    const fs::path errors = fs::path(cell_file(o_.out, cell)).replace_extension(".err");
    const std::vector<std::string> words{"stability_study",
                                         "--run-cell",
                                         to_json(cell).dump(),
                                         "--out",
                                         o_.out.string(),
                                         "--data",
                                         o_.data,
                                         "--threads",
                                         std::to_string(o_.threads),
                                         "--parent",
                                         std::to_string(::getpid())};
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_CREAT | O_TRUNC | O_WRONLY,
                                     0644);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    pid_t pid = 0;
    const int error = posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    STEADY_CHECK(IoError, error == 0, "cannot start a process: {}", std::strerror(error));
    running_.emplace(pid, cell);
  }

  /// Waits for one to end; returns whether it failed.
  bool wait() {
    int status = 0;
    pid_t pid = 0;
    do {
      pid = ::waitpid(-1, &status, 0);
      STEADY_CHECK(IoError, pid > 0 || errno == EINTR, "waitpid: {}", std::strerror(errno));
    } while (!running_.contains(pid));
    const Cell cell = running_.at(pid);
    running_.erase(pid);
    const fs::path file = cell_file(o_.out, cell);
    const fs::path errors = fs::path(file).replace_extension(".err");
    const bool failed = status != 0 || !fs::exists(file);
    if (failed) write_failed_cell(cell, file, ending(status, errors));
    fs::remove(errors);
    return failed;
  }

 private:
  const StudyOptions& o_;
  std::map<pid_t, Cell> running_;
};

}  // namespace

fs::path cell_file(const fs::path& out, const Cell& cell) {
  return out / "cells" / (cell_id(cell) + ".h5");
}

void end_with_parent(std::int64_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) std::_Exit(1);  // it ended before the line above
}

StudySummary run_study(const Plan& plan, const StudyOptions& options) {
  std::error_code error;
  fs::create_directories(options.out / "cells", error);
  STEADY_CHECK(IoError, !error, "{}: cannot be made: {}", options.out.string(), error.message());
  const DirectoryLock lock(options.out);
  write_text_file(options.out / "plan.json", to_json(plan).dump(1) + "\n");
  StudySummary summary;
  std::vector<Cell> todo;
  for (const Cell& cell : plan.cells()) {
    const fs::path file = cell_file(options.out, cell);
    if (options.force) fs::remove(file);
    if (is_finished(file)) {
      ++summary.kept;
    } else {
      todo.push_back(cell);
    }
  }
  if (todo.empty()) return summary;
  Progress progress(fmt::format("{} plan", plan.name), static_cast<std::int64_t>(todo.size()),
                    {.mode = options.progress, .unit = "cells"});
  Workers workers(options);
  std::size_t next = 0;
  while (next < todo.size() || !workers.empty()) {
    if (next < todo.size() && !workers.full()) {
      workers.start(todo[next++]);
      continue;
    }
    summary.failed += workers.wait() ? 1 : 0;
    ++summary.ran;
    progress.step(1, {{"failed", static_cast<double>(summary.failed)}});
  }
  return summary;
}

}  // namespace steady::examples
