// Trains a small CNN on MNIST under one or several normalizations and compares their gradients.
//
//   build/bin/mnist_cnn                                   batch normalization, 3 epochs
//   build/bin/mnist_cnn --norm none --norm batch --norm "layer(over=sample)" --norm rms
//   build/bin/mnist_cnn --save run        saves as it trains; Ctrl-C saves and ends
//   build/bin/mnist_cnn --resume run      goes on, to the same numbers bit for bit
//   build/bin/mnist_cnn --tensorboard events   for `tensorboard --logdir events`
//   mpirun -n 4 build/bin/mnist_cnn       on 4 ranks, each with its part of every batch
//
// Prints the model, a progress bar and the test accuracy of every epoch; then, layer by layer, the
// root mean square of the weights' gradients over the first and the last 50 steps. How to read it:
// a layer whose gradient is far below the others' learns little, and one whose gradient grows from
// first to last is on its way to diverge. Without MNIST in --data (examples/data.sh brings it) the
// program draws a small set of digits itself and says so.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>
#include <steadygrad/steadygrad.hpp>
#include <string>
#include <vector>

#include "examples/common/checkpoints.hpp"
#include "examples/common/cli.hpp"
#include "examples/common/digits.hpp"
#include "examples/common/json_file.hpp"
#include "examples/common/progress.hpp"
#include "examples/common/ranks.hpp"
#include "examples/common/table.hpp"
#include "examples/common/tensorboard.hpp"

namespace {

using namespace steady;
using namespace steady::examples;

struct Cnn : Layer {
  struct Options {
    NormSpec norm;
    std::int64_t height = 28, width = 28, channels = 1, classes = 10;
  };
  explicit Cnn(Options options) : o(std::move(options)) {}

  Options o;
  Conv2d& conv1 =
      add<Conv2d>("conv1", {.in = o.channels, .out = 32, .kernel = 3, .padding = 1, .bias = false});
  Layer& norm1 = add_norm("norm1", o.norm, 32);
  Conv2d& conv2 = add<Conv2d>("conv2", {.in = 32, .out = 64, .padding = 1, .bias = false});
  Layer& norm2 = add_norm("norm2", o.norm, 64);
  Conv2d& conv3 = add<Conv2d>("conv3", {.in = 64, .out = 64, .padding = 1, .bias = false});
  Layer& norm3 = add_norm("norm3", o.norm, 64);
  Linear& head = add<Linear>("head", {.in = (o.height / 4) * (o.width / 4) * 64, .out = o.classes});

  Tensor forward(const Tensor& x) override {        // x: [N, H, W, channels]
    Tensor h = norm_relu_pool(norm1, conv1(x), 2);  // [N, H/2, W/2, 32]
    h = norm_relu_pool(norm2, conv2(h), 2);         // [N, H/4, W/4, 64]
    h = norm_relu(norm3, conv3(h));
    return head(flatten(h, 1));  // [N, classes]
  }
  std::string describe() const override { return "Cnn"; }
};

struct Settings {
  std::vector<std::string> norms;
  std::int64_t epochs = 3;
  std::int64_t batch = 64;
  double lr = 0.01;
  std::int64_t warmup = 200;
  std::uint64_t seed = 1;
  int threads = num_threads();
  std::int64_t limit = 0;
  std::string data = "data";
  std::string json;
  std::string progress = "auto";
  std::string tensorboard;
  CheckpointOptions checkpoints;
};

/// What one run left: everything that the closing tables and --json show.
struct Run {
  std::string norm;
  std::vector<double> train_loss;     // per step
  std::vector<double> test_accuracy;  // per epoch, a fraction
  std::vector<std::string> layers;    // weights of convolutions and head, in order
  std::vector<double> gradient_rms;   // [step][layer]
  double images_per_second = 0;       // of training
  std::int64_t diverged_at = -1;      // step of the first loss that is not finite

  [[nodiscard]] std::size_t steps() const { return gradient_rms.size() / layers.size(); }

  /// Gradient RMS of a layer, averaged over 50 steps at the beginning or at the end.
  [[nodiscard]] double gradient(std::size_t layer, bool last) const {
    const std::size_t n = std::min<std::size_t>(50, steps());
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      sum += gradient_rms[(last ? steps() - 1 - i : i) * layers.size() + layer];
    }
    return n == 0 ? 0.0 : sum / static_cast<double>(n);
  }
};

double test_accuracy(Cnn& model, const Dataset& test, const DataParallel& parallel) {
  model.eval();
  std::int64_t correct = 0;
  for (const Batch& batch :
       batches(test, {.size = 500, .shuffle = false, .shard = parallel.shard()})) {
    correct += count_correct(model(batch.x), batch.y);
  }
  model.train();
  return parallel.sum(static_cast<double>(correct)) / static_cast<double>(test.size());
}

double rms(const Tensor& t) {
  double sum = 0;
  for (const float v : t.data<float>()) sum += double{v} * double{v};
  return std::sqrt(sum / static_cast<double>(t.numel()));
}

/// Trains one model: all that changes from step to step, so that it can be saved and resumed.
class Training {
 public:
  Training(const NormSpec& norm, const TrainTest& data, const Settings& s)
      : data_(data),
        s_(s),
        model_({.norm = norm,
                .height = data.train.x.dim(1),
                .width = data.train.x.dim(2),
                .channels = data.train.x.dim(3)}),
        optimizer_(model_.parameters(), {.lr = s.lr, .momentum = 0.9, .weight_decay = 5e-4}),
        batches_per_epoch_(batches(data.train, options(0)).count()) {
    model_.initialize(s.seed);
    if (distributed::world().size() > 1) (void)convert_to_sync_batch_norm(model_);
    run_.norm = to_string(norm);
    for (const Parameter& p : model_.parameters()) {
      if (p.role != Role::Weight) continue;
      weights_.push_back(p);
      run_.layers.push_back(p.name);
    }
    const std::int64_t steps = batches_per_epoch_ * s.epochs;
    const std::int64_t warmup = std::min<std::int64_t>(s.warmup, steps - 1);
    schedule_ = warmup_schedule(warmup, cosine_schedule(s.lr, steps - warmup));
  }

  Run run(Checkpoints& checkpoints, Tensorboard& board, std::size_t number) {
    std::printf("\n== %s ==\n%s\n", run_.norm.c_str(), model_.summary().c_str());
    std::fflush(stdout);
    TrainingState state;
    describe(state, checkpoints);
    checkpoints.begin(number, state, step_);
    board.begin(number);
    parallel_.emplace(model_);
    // An epoch is over when its accuracy is known.
    for (auto epoch = std::ssize(run_.test_accuracy); epoch < s_.epochs; ++epoch) {
      if (run_.diverged_at < 0) train_epoch(epoch, checkpoints, board);
      if (run_.diverged_at >= 0) break;
      run_.test_accuracy.push_back(test_accuracy(model_, data_.test, *parallel_));
      board.scalar("test/accuracy", step_, run_.test_accuracy.back());
      std::printf("epoch %ld: test accuracy %.2f %%\n", static_cast<long>(epoch + 1),
                  100 * run_.test_accuracy.back());
      std::fflush(stdout);
    }
    checkpoints.finish();
    board.finish();
    if (seconds_ > 0) run_.images_per_second = images_ / seconds_;
    return run_;
  }

 private:
  [[nodiscard]] BatchOptions options(std::int64_t epoch) const {
    return {.size = s_.batch, .seed = s_.seed, .epoch = epoch, .tail = Tail::Merge};
  }

  void describe(TrainingState& state, const Checkpoints& checkpoints) {
    state.track("model", model_).track("optimizer", optimizer_).track("step", step_);
    state.track("train_loss", run_.train_loss).track("test_accuracy", run_.test_accuracy);
    state.track("gradient_rms", run_.gradient_rms).track("diverged_at", run_.diverged_at);
    state.option("program", "mnist_cnn").option("norm", run_.norm).option("seed", s_.seed);
    state.option("epochs", s_.epochs).option("batch", s_.batch);
    state.option("lr", s_.lr).option("warmup", s_.warmup);
    if (checkpoints.active()) state.option("data", checksum(data_.train.x));
  }

  /// Of the update that has just been made.
  void show(Tensorboard& board, const Gradients& gradients, double accuracy) const {
    if (!board.active()) return;
    board.scalar("train/loss", step_, run_.train_loss.back());
    board.scalar("train/accuracy", step_, accuracy);
    board.scalar("train/learning_rate", step_, schedule_(step_ - 1));
    board.parameters(step_, weights_, gradients);
  }

  void train_epoch(std::int64_t epoch, Checkpoints& checkpoints, Tensorboard& board) {
    BatchOptions o = options(epoch);
    o.start = step_ - epoch * batches_per_epoch_;
    o.shard = parallel_->shard();
    Progress progress(fmt::format("epoch {}/{}", epoch + 1, s_.epochs), batches_per_epoch_,
                      {.mode = parse_progress_mode(s_.progress), .done = o.start});
    double seen = 0;
    double correct = 0;
    const auto start = std::chrono::steady_clock::now();
    const Batches epoch_batches = batches(data_.train, o);
    for (const Batch& batch : epoch_batches) {
      optimizer_.set_lr(schedule_(step_));
      Tape tape;
      const Tensor logits = model_(batch.x);
      const Tensor loss = cross_entropy(logits, batch.y);
      const double value = parallel_->mean(loss.item(), batch.size());
      run_.train_loss.push_back(value);
      if (!std::isfinite(value)) {
        run_.diverged_at = step_;
        break;
      }
      const Gradients gradients = parallel_->backward(tape, loss, batch.size());
      optimizer_.step(gradients);
      ++step_;
      for (const Parameter& w : weights_) run_.gradient_rms.push_back(rms(gradients[w.value]));
      const std::int64_t images = epoch_batches.size(batch.index);  // on all ranks
      seen += static_cast<double>(images);
      correct += parallel_->sum(static_cast<double>(count_correct(logits, batch.y)));
      progress.step(images, {{"loss", value}, {"accuracy", correct / seen}});
      show(board, gradients, correct / seen);
      checkpoints.after_step();
    }
    progress.finish();
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    images_ += seen;
  }

  const TrainTest& data_;
  const Settings& s_;
  Cnn model_;
  std::optional<DataParallel> parallel_;  // from the state on that the run begins with
  Sgd optimizer_;
  std::int64_t batches_per_epoch_;
  Schedule schedule_;
  std::vector<Parameter> weights_;
  std::int64_t step_ = 0;  // updates done
  Run run_;
  double seconds_ = 0;  // of this program, not of what it resumed
  double images_ = 0;
};

void print_gradients(const Run& run) {
  Table table({"weight", "gradient RMS, first 50 steps", "last 50 steps", "last / first"});
  for (std::size_t i = 0; i < run.layers.size(); ++i) {
    const double first = run.gradient(i, false);
    const double last = run.gradient(i, true);
    table.add_row({run.layers[i], fmt::format("{:.3e}", first), fmt::format("{:.3e}", last),
                   fmt::format("{:.3f}", last / first)});
  }
  std::printf("\n%s", table.str().c_str());
}

void print_comparison(const std::vector<Run>& runs) {
  Table table({"norm", "test accuracy", "final loss", "conv1 gradient", "head gradient",
               "conv1 / head", "images/s"});
  for (const Run& run : runs) {
    const std::size_t n = std::min<std::size_t>(50, run.train_loss.size());
    const double loss = std::accumulate(run.train_loss.end() - static_cast<std::ptrdiff_t>(n),
                                        run.train_loss.end(), 0.0) /
                        static_cast<double>(n);
    const double first = run.gradient(0, true);
    const double last = run.gradient(run.layers.size() - 1, true);
    table.add_row({run.norm,
                   run.diverged_at >= 0 ? fmt::format("diverged at {}", run.diverged_at)
                                        : fmt::format("{:.2f} %", 100 * run.test_accuracy.back()),
                   fmt::format("{:.4f}", loss), fmt::format("{:.2e}", first),
                   fmt::format("{:.2e}", last), fmt::format("{:.2f}", first / last),
                   fmt::format("{:.0f}", run.images_per_second)});
  }
  std::printf("\nLoss and gradient RMS are means over the last 50 steps.\n%s", table.str().c_str());
}

nlohmann::json to_json(const Run& run) {
  nlohmann::json rows = nlohmann::json::array();
  for (std::size_t i = 0; i < run.gradient_rms.size(); i += run.layers.size()) {
    const auto row = run.gradient_rms.begin() + static_cast<std::ptrdiff_t>(i);
    rows.push_back(std::vector(row, row + std::ssize(run.layers)));
  }
  return {{"norm", run.norm},
          {"train_loss", run.train_loss},
          {"test_accuracy", run.test_accuracy},
          {"diverged_at", run.diverged_at},
          {"layers", run.layers},
          {"gradient_rms", rows},
          {"images_per_second", run.images_per_second}};
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{"Trains a small CNN on MNIST under one or several normalizations."};
  app.add_option("--norm", s.norms,
                 "none, batch, layer, rms, group or any other norm, with options: "
                 "\"batch(momentum=0.05)\"; may be repeated (default batch)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_number<std::int64_t>(app, "--epochs", s.epochs, "passes over the training images", 1);
  add_number<std::int64_t>(app, "--batch", s.batch, "images per step", 1);
  add_number<double>(app, "--lr", s.lr,
                     "largest learning rate: a linear climb, then a cosine decay", 0.0);
  add_number<std::int64_t>(app, "--warmup", s.warmup, "steps of the climb", 0);
  add_number<std::uint64_t>(app, "--seed", s.seed, "of initial weights and batch order");
  add_number<int>(app, "--threads", s.threads, "changes the speed, never the numbers", 1,
                  MaxThreads);
  add_number<std::int64_t>(app, "--limit", s.limit,
                           "most training and most test images to use (0: all)", 0);
  app.add_option("--data", s.data, "directory of the MNIST files")->capture_default_str();
  app.add_option("--json", s.json, "file for losses per step and accuracies per epoch");
  app.add_option("--progress", s.progress, "auto, bar, plain or off")->capture_default_str();
  add_tensorboard_option(app, s.tensorboard);
  add_checkpoint_options(app, s.checkpoints);
  return run_program(app, argc, argv, [&] {
    std::vector<NormSpec> norms;
    if (s.norms.empty()) s.norms = {"batch"};
    for (const std::string& text : s.norms) {
      norms.push_back(checked_option("--norm", [&] { return NormSpec::parse(text); }));
    }
    checked_option("--progress", [&] { return parse_progress_mode(s.progress); });
    const JsonFile file(s.json);
    set_num_threads(s.threads);
    const Digits digits = load_digits({.directory = s.data, .limit = s.limit});
    const TrainTest& data = digits.data;
    distributed::check_same(
        {{"the training images", data.train.x}, {"the test images", data.test.x}},
        distributed::world());
    std::printf("%s\n%s\n%s", digits.source.c_str(), library_report().c_str(),
                ranks_report().c_str());
    std::vector<std::string> names;
    for (const NormSpec& norm : norms) names.push_back(to_string(norm));
    Checkpoints checkpoints(s.checkpoints, names);
    Tensorboard board(s.tensorboard, names);
    std::vector<Run> runs;
    for (std::size_t i = 0; i < norms.size(); ++i) {
      runs.push_back(Training(norms[i], data, s).run(checkpoints, board, i));
      print_gradients(runs.back());
    }
    print_comparison(runs);
    nlohmann::json result = to_json(runs.front());
    result["epochs"] = s.epochs;
    result["batch"] = s.batch;
    result["lr"] = s.lr;
    result["seed"] = s.seed;
    result["train_images"] = data.train.size();
    if (runs.size() > 1) {
      for (const Run& run : runs) result["runs"].push_back(to_json(run));
    }
    file.write(result);
    return checkpoints.lost() ? 1 : 0;
  });
}
