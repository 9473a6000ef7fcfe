// stability_study when it is killed: the logs stay readable, no worker lives on, and the next run
// ends as if nothing had happened.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <random>
#include <sstream>

#include "tests/examples/study/logs.hpp"
#include "tests/examples/study/tiny_study.hpp"

namespace steady {
namespace {

using nlohmann::ordered_json;
using test::logs_in;
using test::plan_of;
using test::result_of;
using test::TinyStudy;
using testing::HasSubstr;

/// A study in a process group of its own. Orphans of the test's children become the test's.
class RunningStudy {
 public:
  RunningStudy(const TinyStudy& study, const std::string& options) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    std::istringstream split("stability_study " + study.arguments() + options);
    std::vector<std::string> words{std::istream_iterator<std::string>(split), {}};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    const std::string program = STEADY_BIN_DIR "/stability_study";
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, &attributes, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  ~RunningStudy() {
    ::kill(-pid_, SIGKILL);
    reap_workers();
  }
  RunningStudy(const RunningStudy&) = delete;
  RunningStudy& operator=(const RunningStudy&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// The study's end; its wait status.
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }
  /// Waits until no process of the group is left; how the orphans ended.
  std::vector<int> reap_workers() const {
    std::vector<int> endings;
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-pid_, &status, 0)) > 0 || errno == EINTR;) {
      if (pid > 0) endings.push_back(status);
    }
    EXPECT_EQ(::kill(-pid_, 0), -1);
    return endings;
  }
  /// A process that the study started, 0 while there is none.
  [[nodiscard]] pid_t worker() const {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::string stat;
      std::getline(std::ifstream(entry.path() / "stat"), stat);
      const std::size_t close = stat.rfind(") ");
      if (close == std::string::npos) continue;
      char state = 0;
      pid_t parent = 0;
      std::istringstream(stat.substr(close + 2)) >> state >> parent;
      if (parent == pid_ && state != 'Z') return std::stoi(name);
    }
    return 0;
  }

 private:
  pid_t pid_ = 0;
};

ordered_json cell(int seed, std::int64_t steps) {
  return {{"model", "mlp"}, {"depth", 2},     {"width", 8},
          {"batch", 8},     {"steps", steps}, {"seed", seed}};
}

ordered_json cells(int count, std::int64_t steps) {
  std::vector<ordered_json> all;
  for (int seed = 1; seed <= count; ++seed) all.push_back(cell(seed, steps));
  return plan_of(all);
}

/// Waits until a worker has begun its log.
void wait_for_log(const TinyStudy& study) {
  const auto is_partial = [](const auto& entry) {
    return entry.path().string().ends_with(".partial.h5");
  };
  for (std::error_code none;;) {
    const std::filesystem::directory_iterator entries(study.out() / "cells", none);
    if (!none && std::any_of(begin(entries), end(entries), is_partial)) return;
    ::poll(nullptr, 0, 1);
  }
}

constexpr std::int64_t Forever = 10'000'000;

TEST(StudyKill, WorkersEndWithTheStudy) {
  const TinyStudy study(cells(2, Forever));
  RunningStudy running(study, "--jobs 2 --threads 1 --progress off");
  wait_for_log(study);
  ::kill(running.pid(), SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(running.wait()));
  const std::vector<int> endings = running.reap_workers();
  EXPECT_GE(endings.size(), 1U);
  for (const int status : endings) EXPECT_NE(status, 0);  // one that starts just now exits
  for (const auto& [name, run] : logs_in(study.out())) EXPECT_FALSE(run.complete) << name;
}

TEST(StudyKill, ASignalEndsStudyAndWorkersAndFailsNoCell) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const TinyStudy study(cells(3, Forever));
    RunningStudy running(study, "--jobs 2 --threads 1 --progress off");
    wait_for_log(study);
    // To the study alone, and, as from a terminal, to its workers too.
    ::kill(signal == SIGINT ? -running.pid() : running.pid(), signal);
    const int status = running.wait();
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + signal) << status;
    EXPECT_THAT(running.reap_workers(), testing::IsEmpty());
    for (const auto& [name, run] : logs_in(study.out())) EXPECT_FALSE(run.complete) << name;
  }
}

TEST(StudyKill, ASecondStudyInADirectoryIsRefusedInOneLine) {
  const TinyStudy study(cells(1, Forever));
  const RunningStudy running(study, "--progress off");
  wait_for_log(study);
  const auto second = study.run("out");
  EXPECT_EQ(second.code, 1);
  EXPECT_EQ(second.text,
            "stability_study: " + study.out().string() + ": another study is running there\n");
}

TEST(StudyKill, AKilledWorkerIsAFailedCellThatRunsAgain) {
  const TinyStudy study(cells(2, 30));
  EXPECT_EQ(study.run("reference", "--progress off").code, 0);
  int failed = 0;
  for (int round = 0; round < 2; ++round) {
    RunningStudy running(study, "--force --jobs 1 --progress off");
    pid_t worker = 0;
    while ((worker = running.worker()) == 0) ::poll(nullptr, 0, 1);
    ::kill(worker, SIGKILL);
    EXPECT_EQ(running.wait(), 0);
    const auto logs = logs_in(study.out());
    EXPECT_EQ(logs.size(), 2U);
    for (const auto& [name, run] : logs) {
      if (result_of(run, "status") != "failed") continue;
      ++failed;
      EXPECT_EQ(result_of(run, "reason"), "ended by signal 9");
    }
  }
  EXPECT_EQ(failed, 2);
  EXPECT_THAT(study.run("out").text, HasSubstr("1 cells run, 1 kept from before, 0 failed"));
  test::expect_same_numbers(logs_in(study.out("reference")), logs_in(study.out()));
}

TEST(StudyKill, KilledAtTwentyMomentsItStillEndsWithTheSameFiles) {
  const TinyStudy study(cells(5, 40));
  EXPECT_EQ(study.run("reference", "--progress off").code, 0);
  std::mt19937 random(17);
  int unfinished = 0;
  for (int round = 0; round < 20; ++round) {
    {
      RunningStudy running(study, "--jobs 2 --threads 1 --progress off");
      ::poll(nullptr, 0, std::uniform_int_distribution<int>(0, 120)(random));
      ::kill(running.pid(), SIGKILL);
      unfinished += WIFSIGNALED(running.wait()) ? 1 : 0;
      running.reap_workers();
    }
    if (!std::filesystem::exists(study.out() / "cells")) continue;
    const auto logs = logs_in(study.out());  // throws for one that cannot be read
    std::size_t finished = 0;
    for (const auto& [name, run] : logs) {
      const bool partial = name.ends_with(".partial.h5");
      EXPECT_TRUE(partial || run.complete) << name;
      finished += partial ? 0 : 1;
    }
    if (finished == 5) std::filesystem::remove_all(study.out());
  }
  EXPECT_GE(unfinished, 10);
  EXPECT_EQ(study.run("out", "--progress off").code, 0);
  const auto logs = logs_in(study.out());
  ASSERT_EQ(logs.size(), 5U);
  for (const auto& [name, run] : logs) {
    EXPECT_TRUE(test::bytes_of(study.out() / "cells" / name) ==
                test::bytes_of(study.out("reference") / "cells" / name))
        << name;
  }
}

}  // namespace
}  // namespace steady
