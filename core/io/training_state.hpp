#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <steadygrad/core/io/checkpoint.hpp>
#include <steadygrad/core/io/checkpoint_store.hpp>
#include <string>
#include <variant>
#include <vector>

namespace steady {

/// What knows its own state: models, optimizers, ReduceOnPlateau. prepare_restore checks a part and
/// returns what takes it over; it throws Error that lists every fault, having changed nothing.
template <class T>
concept Restorable = requires(T& object, const T& still, const CheckpointPart& part) {
  { still.checkpoint() } -> std::convertible_to<CheckpointPart>;
  { object.prepare_restore(part) } -> std::convertible_to<std::function<void()>>;
};

/// Everything that a training run must find again to go on exactly: saved to one file and restored
/// from it.
///
///   TrainingState state;
///   state.track("model", model).track("optimizer", optimizer);  // groups of the file
///   state.track("step", step).track("losses", losses);          // numbers, in group "progress"
///   state.option("norm", "batch").option("seed", seed);         // must be the same again
///   if (resume) state.restore(store.latest());
///   ...
///   store.save(step, state.checkpoint());
///
/// The order of data needs no more than the step: batches and windows are functions of seed, epoch
/// and index. Schedules are functions of Optimizer::updates(). What is tracked must outlive this.
class TrainingState {
 public:
  /// The group `name` of the file. Throws Error for a name that is taken.
  template <Restorable T>
  TrainingState& track(std::string name, T& object) {
    return add_object(
        std::move(name), [&object] { return CheckpointPart(object.checkpoint()); },
        [&object](const CheckpointPart& part) -> std::function<void()> {
          return object.prepare_restore(part);
        });
  }
  /// Variables of the program, in the group "progress".
  using Variable = std::variant<std::int64_t*, std::uint64_t*, double*, std::string*,
                                std::vector<std::int64_t>*, std::vector<double>*>;
  TrainingState& track(std::string name, Variable variable);
  template <class T>
  requires std::constructible_from<Variable, T*> &&
      (!Restorable<T>)TrainingState& track(std::string name, T& variable) {
    return track(std::move(name), Variable(&variable));
  }
  /// A fact of the run, in the group "options": restore refuses a checkpoint with another one.
  TrainingState& option(std::string name, hdf5::Value value);

  /// The state as it is now. Tensors share the memory of what is tracked.
  [[nodiscard]] Checkpoint checkpoint() const;
  /// Takes a state over, all of it or nothing. Throws Error whose one message lists everything that
  /// is missing, unexpected, of another shape or dtype or of another value; `where` begins it.
  void restore(const Checkpoint& checkpoint, const std::string& where = "checkpoint");
  void restore(const LatestCheckpoint& latest) { restore(latest.checkpoint, latest.file.string()); }

  /// save_checkpoint and load_checkpoint of the whole.
  void save(const std::filesystem::path& path) const { save_checkpoint(path, checkpoint()); }
  void load(const std::filesystem::path& path) { restore(load_checkpoint(path), path.string()); }

 private:
  struct Object {
    std::string name;
    std::function<CheckpointPart()> read;
    std::function<std::function<void()>(const CheckpointPart&)> prepare;
  };
  struct Tracked {
    std::string name;
    Variable variable;
  };
  TrainingState& add_object(std::string name, std::function<CheckpointPart()> read,
                            std::function<std::function<void()>(const CheckpointPart&)> prepare);
  [[nodiscard]] CheckpointPart progress() const;
  [[nodiscard]] std::function<void()> prepare_progress(const CheckpointPart& part) const;
  void check_options(const CheckpointPart& part) const;

  std::vector<Object> objects_;
  std::vector<Tracked> variables_;
  hdf5::Attributes options_;
};

}  // namespace steady
