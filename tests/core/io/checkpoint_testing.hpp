#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <steadygrad/core/io/checkpoint.hpp>
#include <string>

#include "tests/core/data/files.hpp"

namespace steady::test {

inline Bytes bytes_of_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  Bytes bytes(text.size());
  std::ranges::transform(text, bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

/// A number from the environment: how often a slow test repeats.
inline int repetitions(const char* variable, int usual) {
  const char* text = std::getenv(variable);
  return text == nullptr ? usual : std::max(1, std::atoi(text));
}

/// Two parts whose every number is `step` or follows from it.
inline Checkpoint checkpoint_of(std::int64_t step, std::int64_t elements = 1000) {
  const auto value = static_cast<double>(step);
  return {{{"model",
            {{{"conv1.weight", Tensor::full({elements}, value)},
              {"norm1.running_mean", Tensor::full({4}, value, Dtype::F64)}},
             {{"mode", std::string("train")}}}},
           {"progress", {{}, {{"step", step}, {"loss", value / 2}}}}}};
}

/// The step of a checkpoint_of; fails the test when its parts are of different ones.
inline std::int64_t step_of(const Checkpoint& checkpoint) {
  const CheckpointPart* model = checkpoint.find("model");
  const CheckpointPart* progress = checkpoint.find("progress");
  if (model == nullptr || progress == nullptr || model->tensors.size() != 2) {
    ADD_FAILURE() << "a part is missing";
    return -1;
  }
  const auto step = std::get<std::int64_t>(progress->values.at(0).second);
  for (const float v : model->tensors[0].value.data<float>()) {
    EXPECT_EQ(v, static_cast<float>(step));
  }
  for (const double v : model->tensors[1].value.data<double>()) {
    EXPECT_EQ(v, static_cast<double>(step));
  }
  return step;
}

/// How a child process ended that ran `work`: its result as exit code, 99 for an exception.
inline int status_of_child(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    int code = 99;
    try {
      code = work();
    } catch (...) {
      code = 99;
    }
    _exit(code);
  }
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

inline void limit(__rlimit_resource_t what, rlim_t most) {
  const rlimit value{most, most};
  setrlimit(what, &value);
}

}  // namespace steady::test
