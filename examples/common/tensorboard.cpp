#include "examples/common/tensorboard.hpp"

#include <cmath>
#include <filesystem>
#include <iostream>
#include <steadygrad/core/distributed/world.hpp>
#include <steadygrad/core/error.hpp>

#include "examples/common/checkpoints.hpp"
#include "examples/common/cli.hpp"

namespace steady::examples {
namespace {

double norm(const Tensor& t) {
  double sum = 0;
  for (const float v : t.data<float>()) sum += double{v} * double{v};
  return std::sqrt(sum);
}

}  // namespace

void add_tensorboard_option(CLI::App& app, std::string& directory) {
  app.add_option("--tensorboard", directory,
                 "directory for event files: losses, rates, norms and histograms of gradients");
}

Tensorboard::Tensorboard(std::string directory, std::vector<std::string> runs)
    : directory_(distributed::world().rank() == 0 ? std::move(directory) : ""),
      runs_(std::move(runs)) {
  if (!active()) return;
  if (!has_event_files()) {
    throw OptionError(
        "--tensorboard: built without protobuf; apt-get install libprotobuf-dev "
        "protobuf-compiler, then configure and build again");
  }
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) {
    throw OptionError(fmt::format("--tensorboard: '{}': {}", directory_, error.message()));
  }
}

template <class F>
void Tensorboard::write(F&& body) {
  if (!file_) return;
  try {
    body(*file_);
  } catch (const IoError& error) {
    file_.reset();
    std::cout << std::flush;
    std::cerr << "warning: no more events are written: " << error.what() << std::endl;
  }
}

void Tensorboard::begin(std::size_t run) {
  if (!active()) return;
  const std::filesystem::path place = directory_;
  file_.emplace(runs_.size() > 1 ? place / directory_name(runs_[run]) : place);
}

void Tensorboard::scalar(const std::string& tag, std::int64_t step, double value) {
  write([&](EventFile& file) { file.scalar(tag, step, value); });
}

void Tensorboard::parameters(std::int64_t step, std::span<const Parameter> parameters,
                             const Gradients& gradients) {
  write([&](EventFile& file) {
    for (const Parameter& p : parameters) {
      const Tensor* gradient = gradients.find(p.value);
      if (gradient == nullptr) continue;
      file.scalar("gradient_norm/" + p.name, step, norm(*gradient));
      if ((step - 1) % HistogramEvery != 0) continue;
      file.histogram("parameters/" + p.name, step, p.value);
      file.histogram("gradients/" + p.name, step, *gradient);
    }
  });
}

void Tensorboard::finish() {
  write([](EventFile& file) { file.close(); });
  file_.reset();
}

}  // namespace steady::examples
