#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <steadygrad/core/parameter.hpp>
#include <steadygrad/layers/init.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace steady {

class Layer;
class NormSpec;
struct CheckpointPart;

/// Train: batch statistics, dropout, gradients. Eval: running statistics, no dropout. Frozen: as
/// eval, parameters without gradients, and train() of a parent does not change it.
enum class Mode : std::uint8_t { Train, Eval, Frozen };

/// "train", "eval", "frozen".
[[nodiscard]] std::string_view to_string(Mode mode);

/// How strictly Module::load takes a state.
struct LoadOptions {
  bool strict = true;  ///< throw unless names and shapes agree exactly
};

/// What did not fit. Empty after a strict load.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the model, not in the state
  std::vector<std::string> unexpected;  ///< in the state, not in the model
  std::vector<std::string> misfit;      ///< both, with another shape or kind of dtype

  [[nodiscard]] bool clean() const {
    return missing.empty() && unexpected.empty() && misfit.empty();
  }
  /// Throws Error that begins with `title` and lists everything, unless the report is clean.
  void raise(const std::string& title) const;
};

/// A named tree of parameters, buffers and child modules. Children, parameters and buffers register
/// by the expression that makes them:
///
///   struct Mlp : Layer {
///     struct Options { std::int64_t in = 0, out = 0; };
///     explicit Mlp(Options options) : o(options) {}
///     const Options o;
///     Linear& up = add<Linear>("up", {.in = o.in, .out = 4 * o.in});
///     Linear& down = add<Linear>("down", {.in = 4 * o.in, .out = o.out});
///     Tensor forward(const Tensor& x) override { return down(relu(up(x))); }
///   };
///
/// Modules are neither copied nor moved; clone() makes an independent copy. A new module is in
/// train mode.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // --- the tree ---
  /// Makes a child from its options. Throws Error for a name that is empty, taken, or has a dot.
  template <class M>
  M& add(std::string name, typename M::Options options) {
    auto child = std::make_unique<M>(options);
    M& result = *child;
    adopt(std::move(name), std::move(child),
          [options](Module& parent, const std::string& as) { parent.add<M>(as, options); });
    return result;
  }
  /// Makes the norm that `spec` describes, over `features` features (see NormSpec).
  Layer& add_norm(std::string name, const NormSpec& spec, std::int64_t features);
  /// Dotted path from the root; empty for the root itself.
  [[nodiscard]] std::string path() const;
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Module* parent() const { return parent_; }
  /// Children in the order of registration.
  [[nodiscard]] std::vector<Module*> children() const;
  /// Calls `visit` for this module and everything below, parents first.
  void visit(const std::function<void(Module&)>& visit);
  void visit(const std::function<void(const Module&)>& visit) const;

  // --- what it holds ---
  /// Every learned tensor once (tied ones under their first name).
  [[nodiscard]] std::vector<Parameter> parameters() const;
  /// Parameters and buffers under PyTorch's dotted names.
  [[nodiscard]] State state() const;
  /// Copies a state's values in. Checks everything first: on an error, one message lists all
  /// missing, unexpected and mis-shaped names and nothing has changed. float32 and float64 convert
  /// into each other; nothing broadcasts. Names tied to one tensor may be given once or more often,
  /// but not with different values. An undefined tensor in the state does not fit.
  LoadReport load(const State& state, const LoadOptions& options = {});
  /// Everything that an exact resumption needs. Tensors: state(), sharing its memory. Values: the
  /// mode of every module ("conv1.mode", "mode" for the root), "<parameter>.requires_grad" = 0 for
  /// parameters without gradients, and counters of layers ("drop.calls").
  [[nodiscard]] CheckpointPart checkpoint() const;
  /// Checks a part; what it returns copies everything in and works once, on this model as it is.
  /// Strict: throws Error with one message for all faults, having changed nothing.
  [[nodiscard]] std::function<void()> prepare_restore(const CheckpointPart& part);
  /// Number of learned elements.
  [[nodiscard]] std::int64_t parameter_count() const;
  /// Fills every parameter from (seed, its path) alone, and resets buffers: exchanging one layer
  /// leaves the initial values of all others the same, bit for bit. A tied tensor is filled once,
  /// under its first name.
  void initialize(std::uint64_t seed);
  /// Converts parameters and floating buffers to f32 or f64. Make optimizers afterwards.
  void to(Dtype dtype);

  // --- modes ---
  [[nodiscard]] Mode mode() const { return mode_; }
  /// Sets train (or eval) mode here and below, frozen modules aside.
  void train(bool on = true);
  void eval() { train(false); }
  /// Freezes statistics and parameters here and below until unfreeze().
  void freeze();
  /// Ends freeze(): train mode, parameters require gradients.
  void unfreeze();

  // --- looking at it ---
  /// One line: "Conv2d(1, 32, kernel=3x3, padding=1x1)".
  [[nodiscard]] virtual std::string describe() const { return "Module"; }
  /// "" or, for a layer with running statistics, "updating" or "frozen".
  [[nodiscard]] virtual std::string statistics() const { return ""; }
  /// A table of the tree: path, layer, parameters with shapes and roles, mode, statistics.
  [[nodiscard]] std::string summary() const;

 protected:
  /// A learned tensor, f32, requiring a gradient. It has no values until initialize() or load(),
  /// unless `init` is a constant. With present = false the result is undefined and unregistered.
  Tensor& add_parameter(std::string name, const Shape& shape, Role role, Init init,
                        bool present = true);
  /// The same with its values given: initialize() restores them.
  Tensor& add_parameter(std::string name, const Tensor& value, Role role, bool present = true);
  /// A tensor that is saved but not learned. initialize() restores `value`.
  Tensor& add_buffer(std::string name, const Tensor& value, bool present = true);
  /// Called by initialize() with the seed, for layers that draw random numbers later.
  virtual void on_initialize(std::uint64_t seed) { (void)seed; }
  /// A number that a layer keeps beside parameters and buffers and that decides what it computes.
  struct Counter {
    const char* name;
    std::uint64_t* value;
  };
  /// All of them, for checkpoint().
  [[nodiscard]] virtual std::vector<Counter> counters() { return {}; }
  /// Called on a copy, whose parameters and buffers are those of `original` already, for layers
  /// that have a state beside them.
  virtual void on_clone(const Module& original) { (void)original; }
  /// Takes a child. `rebuild` makes one like it under a parent and a name, for clone().
  void adopt(std::string name, std::unique_ptr<Module> child,
             std::function<void(Module& parent, const std::string& name)> rebuild);
  /// Throws Error when a parameter of this module has no values yet.
  void check_initialized();

 private:
  friend void copy_module(const Module& from, Module& to);
  friend std::vector<std::vector<Tensor*>> parameter_places(Module& module);
  friend class ForwardState;

  struct Entry {
    std::string name;
    Tensor value;
    Role role = Role::Weight;
    bool buffer = false;
    bool ready = true;
    Init init{};
    Tensor initial{};
  };
  struct Child {
    std::string name;
    std::unique_ptr<Module> module;
    std::function<void(Module&, const std::string&)> rebuild;
  };

  /// Checks a state: what does not fit goes into the report, the result copies in what does.
  [[nodiscard]] std::function<void()> plan_load(const State& state, LoadReport& report);
  /// Values that checkpoint() has, in its order: name, what it is now, how to set it.
  struct Extra {
    std::string name;
    std::variant<Module*, Entry*, Counter> place;
  };
  [[nodiscard]] std::vector<Extra> extras();
  /// `copies`: what became of the tensors copied so far, by the id of their storage.
  void copy_from(const Module& from, std::unordered_map<std::uint64_t, Tensor>& copies);
  Tensor& add_entry(Entry entry, bool present);
  void check_name(const char* what, const std::string& name) const;
  void each_entry(const std::string& prefix,
                  const std::function<void(const std::string& path, Entry&)>& visit);

  std::string name_;
  Module* parent_ = nullptr;
  Mode mode_ = Mode::Train;
  std::atomic<bool> ready_ = false;  // threads may share a model that they only run
  std::deque<Entry> entries_;        // a deque: references to values stay valid
  std::deque<Tensor> absent_;
  std::vector<Child> children_;
};

/// Makes `to`, built from the same options, equal to `from`: children added later, dtype, values,
/// ties, modes, gradient flags and the random streams of dropout. No memory is shared. Throws Error
/// when `to` has other children or parameters.
void copy_module(const Module& from, Module& to);

/// Where a model keeps each tensor of parameters(), in its order: several places when it is tied.
/// Writing another tensor there exchanges what the next forward uses. The places live as long as
/// the model. Throws Error when a parameter has no values yet.
[[nodiscard]] std::vector<std::vector<Tensor*>> parameter_places(Module& module);

/// Puts other tensors in the places of parameters while it lives, values[i] in all of places[i].
class ParameterExchange {
 public:
  ParameterExchange(std::span<const std::vector<Tensor*>> places, std::span<const Tensor> values);
  ~ParameterExchange();
  ParameterExchange(const ParameterExchange&) = delete;
  ParameterExchange& operator=(const ParameterExchange&) = delete;

 private:
  std::vector<std::pair<Tensor*, Tensor>> own_;
};

/// An independent copy: same structure, values, modes and ties, no shared memory. An optimizer of
/// the original does not move it.
template <class M>
[[nodiscard]] std::unique_ptr<M> clone(const M& module) {
  auto copy = std::make_unique<M>(module.o);
  copy_module(module, *copy);
  return copy;
}

}  // namespace steady
