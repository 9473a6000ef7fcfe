#include "examples/common/checkpoints.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <steadygrad/core/distributed/world.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/crc64.hpp>

#include "examples/common/cli.hpp"
#include "examples/common/ranks.hpp"

namespace steady::examples {
namespace {

namespace fs = std::filesystem;

/// A numbered file belongs to a directory of checkpoints, in which a resumed run goes on.
std::string place_of(const std::string& resume) {
  const fs::path path = resume;
  const bool numbered = path.extension() == ".h5" && path.filename().string().starts_with("step-");
  if (!numbered) return resume;
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

/// The newest checkpoint that rank 0 finds, on every rank: the others need not see its disk.
LatestCheckpoint latest_of_first_rank(const CheckpointStore& store) {
  distributed::Communicator& ranks = distributed::world();
  LatestCheckpoint latest;
  distributed::on_first_rank(ranks, [&] { latest = store.latest(); });
  if (ranks.size() == 1) return latest;
  std::string bytes;
  if (ranks.rank() == 0) {
    std::ifstream in(latest.file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  bytes = ranks.broadcast(std::string_view(bytes));
  latest.file = ranks.broadcast(std::string_view(latest.file.string()));
  if (ranks.rank() > 0) {
    const fs::path copy = fs::temp_directory_path() / fmt::format("steady-{}.h5", ::getpid());
    std::ofstream(copy, std::ios::binary) << bytes;
    latest.checkpoint = load_checkpoint(copy);
    fs::remove(copy);
  }
  return latest;
}

}  // namespace

std::string directory_name(std::string run) {
  for (char& c : run) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       std::string_view("._-+=()").find(c) != std::string_view::npos;
    if (!plain) c = '_';
  }
  return run;
}

void add_checkpoint_options(CLI::App& app, CheckpointOptions& options) {
  app.add_option("--save", options.save,
                 "where to save the state of the training: a directory, or a file NAME.h5");
  add_number<std::int64_t>(app, "--save-every", options.every,
                           "steps between saves; the last state is saved too", 1);
  add_number<std::int64_t>(app, "--keep", options.keep, "files that stay in the directory", 1);
  app.add_option("--resume", options.resume,
                 "go on from what --save left there, with the same options");
}

Checkpoints::Checkpoints(CheckpointOptions options, std::vector<std::string> runs)
    : o_(std::move(options)), runs_(std::move(runs)) {
  if (o_.save.empty()) o_.save = place_of(o_.resume);
  if (!active()) return;
  std::set<std::string> names;
  for (std::string& run : runs_) {
    run = directory_name(run);
    if (!names.insert(run).second) {
      throw OptionError(fmt::format("--save: two runs have the name '{}'", run));
    }
  }
  for (const std::string& place : {o_.save, o_.resume}) {
    if (runs_.size() > 1 && !place.empty() && !CheckpointStore(place).is_directory()) {
      throw OptionError(
          fmt::format("--save: several runs need a directory, not the file '{}'", place));
    }
  }
  const auto holds_some = [&](const std::string& place) {
    return agreed_by_first_rank([&] {
      for (std::size_t i = 0; i < runs_.size(); ++i) {
        if (!store(place, i).files().empty()) return true;
      }
      return false;
    });
  };
  if (!o_.resume.empty() && !holds_some(o_.resume)) {
    throw OptionError(fmt::format("--resume: there is no checkpoint in '{}'", o_.resume));
  }
  const bool goes_on = !o_.resume.empty() &&
                       fs::weakly_canonical(place_of(o_.resume)) == fs::weakly_canonical(o_.save);
  if (!goes_on && holds_some(o_.save)) {
    throw OptionError(
        fmt::format("--save: '{}' holds checkpoints; go on with --resume {} or take another place",
                    o_.save, o_.save));
  }
}

CheckpointStore Checkpoints::store(const std::string& path, std::size_t run) const {
  return CheckpointStore(runs_.size() > 1 ? fs::path(path) / runs_[run] : fs::path(path),
                         {.keep = o_.keep});
}

void Checkpoints::begin(std::size_t run, TrainingState& state, const std::int64_t& step) {
  run_ = run;
  state_ = &state;
  step_ = &step;
  if (!active()) return;
  const CheckpointStore from = store(o_.resume.empty() ? o_.save : o_.resume, run);
  if (!o_.resume.empty() && agreed_by_first_rank([&] { return !from.files().empty(); })) {
    const LatestCheckpoint latest = latest_of_first_rank(from);
    state.restore(latest);
    for (const std::string& skipped : latest.skipped) std::cout << skipped << '\n';
    std::cout << fmt::format("resumed from '{}' after step {}\n", latest.file.string(), step);
    distributed::on_first_rank(distributed::world(), [&] { store(o_.save, run).prepare(step); });
  } else {
    save();
  }
}

void Checkpoints::save() {
  distributed::on_first_rank(
      distributed::world(), [&] { (void)store(o_.save, run_).save(*step_, state_->checkpoint()); });
}

bool Checkpoints::save_or_warn() {
  return agreed_by_first_rank([&] {
    try {
      (void)store(o_.save, run_).save(*step_, state_->checkpoint());
      return true;
    } catch (const IoError& error) {
      std::cout << std::flush;
      std::cerr << "warning: step " << *step_ << " is not saved: " << error.what() << std::endl;
      return false;
    }
  });
}

void Checkpoints::stop(int signal, bool saved) const {
  throw Stopped{signal, fmt::format("stopped by {} after step {}; {}", signal_name(signal), *step_,
                                    saved ? "to go on: the same options with --resume " + o_.save
                                          : "nothing is saved without --save")};
}

void Checkpoints::after_step() {
  if (const int signal = largest_of_ranks(StopSignals::received()); signal != 0) {
    if (active()) save();
    stop(signal, active());
  }
  if (active() && *step_ % o_.every == 0) (void)save_or_warn();
}

void Checkpoints::finish() {
  if (active() && !save_or_warn()) lost_ = true;
  const int signal = largest_of_ranks(StopSignals::received());
  if (signal != 0 && !lost_) stop(signal, active());
}

std::uint64_t checksum(const Tensor& tensor) {
  return crc64({tensor.storage().bytes(),
                static_cast<std::size_t>(tensor.numel() * size_of(tensor.dtype()))});
}

}  // namespace steady::examples
