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
#include <ctime>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <steadygrad/core/distributed/world.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/run_record.hpp>

#include "examples/common/stop_signal.hpp"
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

/// The environment of a process that is no rank of its own.
std::vector<char*> environment_of_child() {
  std::vector<char*> variables;
  for (char** v = environ; *v != nullptr; ++v) {
    const std::string_view variable = *v;
    if (!distributed::detail::is_launch_variable(variable.substr(0, variable.find('=')))) {
      variables.push_back(*v);
    }
  }
  variables.push_back(nullptr);
  return variables;
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

/// While alive, SIGINT, SIGTERM and the end of a child wait until they are asked for.
class SignalsWait {
 public:
  SignalsWait() {
    sigemptyset(&waiting_);
    for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&waiting_, signal);
    ::pthread_sigmask(SIG_BLOCK, &waiting_, &before_);
  }
  ~SignalsWait() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

  /// The signal that asked to stop, 0 while there is none.
  int stop() {
    take(timespec{});
    return stop_ != 0 ? stop_ : StopSignals::received();
  }
  /// Until a signal comes; a little while at most, for those that another thread took.
  void wait() { take({.tv_sec = 0, .tv_nsec = 200'000'000}); }
  [[nodiscard]] const sigset_t& before() const { return before_; }

 private:
  void take(timespec at_most) {
    for (int signal; (signal = ::sigtimedwait(&waiting_, nullptr, &at_most)) > 0; at_most = {}) {
      if (signal != SIGCHLD) stop_ = signal;
    }
  }
  const StopSignals handlers_{};
  sigset_t waiting_;
  sigset_t before_;
  int stop_ = 0;
};

/// The processes of a study.
class Workers {
 public:
  explicit Workers(const StudyOptions& options) : o_(options) {}
  ~Workers() {
    for (const auto& [pid, cell] : running_) ::kill(pid, SIGTERM);
    for (const auto& [pid, cell] : running_) {
      while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
      std::error_code ignored;
      fs::remove(errors_of(cell), ignored);
    }
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  [[nodiscard]] bool full() const { return running_.size() >= static_cast<std::size_t>(o_.jobs); }
  [[nodiscard]] bool empty() const { return running_.empty(); }

  void start(const Cell& cell) {
    const fs::path errors = errors_of(cell);
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
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &signals_.before());
    pid_t pid = 0;
    std::vector<char*> environment = environment_of_child();
    const int error =
        posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, argv.data(), environment.data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    STEADY_CHECK(IoError, error == 0, "cannot start a process: {}", std::strerror(error));
    running_.emplace(pid, cell);
  }

  /// Waits for one to end; returns whether it failed. Throws Stopped on SIGINT or SIGTERM, which
  /// a worker may have had too: none that ends then has failed.
  bool wait() {
    int status = 0;
    pid_t pid = 0;
    while (!running_.contains(pid = ::waitpid(-1, &status, WNOHANG))) {
      STEADY_CHECK(IoError, pid >= 0 || errno == EINTR, "waitpid: {}", std::strerror(errno));
      if (pid == 0) signals_.wait();
      check_stop();
    }
    const Cell cell = running_.at(pid);
    const fs::path file = cell_file(o_.out, cell);
    const bool failed = status != 0 || !fs::exists(file);
    if (failed) check_stop(pid);
    running_.erase(pid);
    if (failed) write_failed_cell(cell, file, ending(status, errors_of(cell)));
    fs::remove(errors_of(cell));
    return failed;
  }

 private:
  [[nodiscard]] fs::path errors_of(const Cell& cell) const {
    return fs::path(cell_file(o_.out, cell)).replace_extension(".err");
  }
  /// `ended`: a worker that is none any more.
  void check_stop(pid_t ended = 0) {
    const int signal = signals_.stop();
    if (signal == 0) return;
    if (ended > 0) {
      fs::remove(errors_of(running_.at(ended)));
      running_.erase(ended);
    }
    throw Stopped{signal, fmt::format("stopped by {}; finished cells are kept: the same command "
                                      "{}goes on",
                                      signal_name(signal), o_.force ? "without --force " : "")};
  }

  const StudyOptions& o_;
  SignalsWait signals_;
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

namespace {

/// What rank 0 finds: how many cells are finished, and which ones are not.
struct Todo {
  int kept = 0;
  std::vector<std::size_t> cells;
};

Todo prepare(const Plan& plan, const StudyOptions& options) {
  write_text_file(options.out / "plan.json", to_json(plan).dump(1) + "\n");
  Todo todo;
  const std::vector<Cell> cells = plan.cells();
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const fs::path file = cell_file(options.out, cells[i]);
    if (options.force) fs::remove(file);
    if (is_finished(file)) {
      ++todo.kept;
    } else {
      todo.cells.push_back(i);
    }
  }
  return todo;
}

/// The cells that this rank runs: every size-th.
std::vector<Cell> share(const Plan& plan, std::vector<std::size_t> todo) {
  distributed::Communicator& ranks = distributed::world();
  std::uint64_t count = todo.size();
  ranks.broadcast(std::span(&count, 1));
  todo.resize(count);
  ranks.broadcast(std::span(todo));
  const std::vector<Cell> cells = plan.cells();
  std::vector<Cell> mine;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % static_cast<std::size_t>(ranks.size()) == static_cast<std::size_t>(ranks.rank())) {
      mine.push_back(cells[todo[i]]);
    }
  }
  return mine;
}

}  // namespace

StudySummary run_study(const Plan& plan, const StudyOptions& options) {
  distributed::Communicator& ranks = distributed::world();
  std::optional<DirectoryLock> lock;
  Todo todo;
  distributed::on_first_rank(ranks, [&] {
    std::error_code error;
    fs::create_directories(options.out / "cells", error);
    STEADY_CHECK(IoError, !error, "{}: cannot be made: {}", options.out.string(), error.message());
    lock.emplace(options.out);
    todo = prepare(plan, options);
  });
  STEADY_CHECK(IoError, fs::is_directory(options.out / "cells"),
               "{}: rank 0 made it, and it is not seen here; the ranks need a directory in common",
               options.out.string());
  const std::vector<Cell> cells = share(plan, std::move(todo.cells));
  StudySummary summary{.kept = todo.kept};
  if (!cells.empty()) {
    Progress progress(fmt::format("{} plan", plan.name), std::ssize(cells),
                      {.mode = options.progress, .unit = "cells"});
    Workers workers(options);
    std::size_t next = 0;
    while (next < cells.size() || !workers.empty()) {
      if (next < cells.size() && !workers.full()) {
        workers.start(cells[next++]);
        continue;
      }
      summary.failed += workers.wait() ? 1 : 0;
      ++summary.ran;
      progress.step(1, {{"failed", static_cast<double>(summary.failed)}});
    }
  }
  if (ranks.size() > 1) {
    ranks.barrier();  // the last cells may take long
    std::vector<double> totals{double(summary.ran), double(summary.failed)};
    ranks.all_reduce(std::span(totals));
    summary.ran = static_cast<int>(totals[0]);
    summary.failed = static_cast<int>(totals[1]);
  }
  return summary;
}

}  // namespace steady::examples
