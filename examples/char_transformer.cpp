// Trains a character-level Transformer on text under any norm and any place for it, then writes.
//
//   build/bin/char_transformer                              LayerNorm, pre; 2,000 steps
//   build/bin/char_transformer --norm rms --placement sandwich --rope --mlp swiglu --qk-norm rms
//   build/bin/char_transformer --norm layer --norm rms --placement pre --placement post
//   build/bin/char_transformer --save run      saves as it trains; Ctrl-C saves and ends
//   build/bin/char_transformer --resume run    goes on, to the same numbers bit for bit
//   build/bin/char_transformer --tensorboard events   for `tensorboard --logdir events`
//   mpirun -n 4 build/bin/char_transformer     on 4 ranks, each with its part of every batch
//
// Prints the model, a progress bar (loss in nats per character, norm of the gradient before it is
// clipped), the validation loss and a sample; with several norms or placements it trains every
// combination and ends with a table. How to read it: the entropy of single characters is about 3.3
// nats; 1.8 means words, 1.5 good spelling. Text: --text FILE, else what examples/data.sh text
// brought, else a generated text whose entropy is known.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <steadygrad/steadygrad.hpp>
#include <string>
#include <vector>

#include "examples/common/checkpoints.hpp"
#include "examples/common/cli.hpp"
#include "examples/common/json_file.hpp"
#include "examples/common/progress.hpp"
#include "examples/common/ranks.hpp"
#include "examples/common/table.hpp"
#include "examples/common/tensorboard.hpp"
#include "examples/common/text_source.hpp"

namespace {

using namespace steady;
using namespace steady::examples;

struct Settings {
  std::vector<std::string> norms;
  std::vector<std::string> placements;
  std::string gate = "none";
  std::string qk_norm = "none";
  std::string mlp = "gelu_tanh";
  std::int64_t layers = 4;
  std::int64_t dim = 128;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;
  std::int64_t context = 128;
  std::int64_t batch = 16;
  std::int64_t accumulate = 1;
  std::int64_t steps = 2000;
  double lr = 2e-3;
  std::int64_t warmup = 100;
  double weight_decay = 0.1;
  double clip = 1.0;
  double dropout = 0.0;
  bool rope = false;
  bool bias = true;
  std::uint64_t seed = 1;
  int threads = num_threads();
  std::string text;
  bool bytes = false;
  std::string data = "data";
  std::int64_t sample = 300;
  std::string prompt;
  double temperature = 0.8;
  std::int64_t top_k = 0;
  std::int64_t evaluate_every = 500;
  std::string json;
  std::string progress = "auto";
  std::string tensorboard;
  CheckpointOptions checkpoints;
};

/// What one run left.
struct Run {
  std::string norm;
  std::string placement;
  std::vector<double> train_loss;       // per step
  std::vector<double> gradient_norm;    // per step, before clipping
  std::vector<double> validation_loss;  // per evaluation
  std::vector<std::int64_t> evaluated_at;
  std::int64_t diverged_at = -1;  // the step that gave no finite number
  std::int64_t parameters = 0;
  double tokens_per_second = 0;
  std::string sample;
};

/// Throws for options that do not fit together, before anything is read or printed.
Decoder::Options decoder_options(const NormSpec& norm, const Placement& placement,
                                 const Settings& s, std::int64_t vocabulary) {
  Decoder::Options o = Decoder::gpt2({.vocab = vocabulary,
                                      .context = s.context,
                                      .dim = s.dim,
                                      .layers = s.layers,
                                      .heads = s.heads});
  o.norm = norm;
  o.placement = placement;
  o.kv_heads = s.kv_heads;
  o.gate = checked_option("--gate", [&] { return Gate::parse(s.gate); });
  o.qk_norm = checked_option("--qk-norm", [&] { return NormSpec::parse(s.qk_norm); });
  o.mlp = checked_option("--mlp", [&] { return parse_mlp_kind(s.mlp); });
  o.positions = s.rope ? Positions::Rotary : Positions::Learned;
  o.bias = s.bias;
  o.dropout = s.dropout;
  return o;
}

TextOptions text_options(const Settings& s) {
  return {.unit = s.bytes ? TextUnit::Byte : TextUnit::Character, .context = s.context};
}

/// Mean loss over the validation text, every character once.
double validation_loss(Decoder& model, const Text& text, std::int64_t context,
                       const DataParallel& parallel) {
  model.eval();
  double sum = 0;
  double count = 0;
  for (const Batch& batch :
       windows(text.validation,
               {.context = context, .size = 32, .shuffle = false, .shard = parallel.shard()})) {
    if (batch.size() == 0) continue;
    const auto n = static_cast<double>(batch.y.numel());
    sum += n * model.loss(batch.x, batch.y).item();
    count += n;
  }
  model.train();
  return parallel.sum(sum) / parallel.sum(count);
}

std::string write_sample(Decoder& model, const Text& text, const Settings& s) {
  model.eval();
  const std::vector<std::int64_t> prompt = s.prompt.empty()
                                               ? std::vector{text.train.data<std::int64_t>()[0]}
                                               : text.vocabulary.encode(s.prompt);
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::int64_t> ids =
      generate(model, prompt,
               {.count = s.sample,
                .sample = {.temperature = s.temperature, .top_k = s.top_k},
                .seed = s.seed});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string written = text.vocabulary.decode(ids);
  std::printf("sample (temperature %g, %.0f characters/s):\n%s\n", s.temperature,
              static_cast<double>(s.sample) / seconds, written.c_str());
  return written;
}

/// The windows of the training text, epoch after epoch, from batch number `first` on.
class TrainingWindows {
 public:
  TrainingWindows(const Text& text, const Settings& s, Shard shard, std::int64_t first)
      : text_(text), s_(s), shard_(shard), epoch_(make(0)) {
    number_ = first / epoch_.count();
    index_ = first % epoch_.count();
    epoch_ = make(number_);
  }
  Batch next() {
    if (index_ == epoch_.count()) {
      epoch_ = make(++number_);
      index_ = 0;
    }
    return epoch_[index_++];
  }

 private:
  [[nodiscard]] Windows make(std::int64_t number) const {
    return windows(text_.train, {.context = s_.context,
                                 .size = s_.batch,
                                 .seed = s_.seed,
                                 .epoch = number,
                                 .shard = shard_});
  }
  const Text& text_;
  const Settings& s_;
  Shard shard_;
  Windows epoch_;
  std::int64_t number_ = 0;
  std::int64_t index_ = 0;
};

/// The mean loss and gradient of `accumulate` batches on all ranks; the loss is not finite when one
/// is not.
struct StepResult {
  double loss = 0;
  Gradients gradients;
};
StepResult forward_backward(Decoder& model, TrainingWindows& data, std::int64_t accumulate,
                            DataParallel& parallel) {
  Accumulator sum;
  for (std::int64_t i = 0; i < accumulate; ++i) {
    const Batch batch = data.next();
    Tape tape;
    const Tensor loss = model.loss(batch.x, batch.y);
    const double value = parallel.mean(loss.item(), batch.size());
    if (!std::isfinite(value)) return {value, {}};
    if (accumulate == 1) return {value, parallel.backward(tape, loss, batch.size())};
    sum.add_mean(tape.backward(loss), batch.y.numel(), loss.item());
  }
  const std::int64_t tokens = sum.count();
  const double loss = parallel.mean(tokens > 0 ? sum.mean_loss() : 0, tokens);
  return {loss, parallel.average(sum.take_average(), tokens)};
}

/// Limits the norm of the gradients and returns what it was; nothing when it is not finite.
std::optional<double> clipped(Gradients& gradients, const Optimizer& optimizer, double limit) {
  try {
    return clip_grad_norm(gradients, optimizer.parameters(), {.max_norm = limit}).norm;
  } catch (const NonFiniteError&) {
    return std::nullopt;
  }
}

/// Trains one model: all that changes from step to step, so that it can be saved and resumed.
class Training {
 public:
  Training(const NormSpec& norm, const Placement& placement, const Text& text, const Settings& s)
      : text_(text),
        s_(s),
        model_(decoder_options(norm, placement, s, text.vocabulary.size())),
        optimizer_(model_.parameters(),
                   {.lr = s.lr, .beta2 = 0.99, .weight_decay = s.weight_decay}) {
    model_.initialize(s.seed);
    if (distributed::world().size() > 1) (void)convert_to_sync_batch_norm(model_);
    run_.norm = to_string(norm);
    run_.placement = to_string(placement);
    run_.parameters = model_.parameter_count();
  }

  Run run(Checkpoints& checkpoints, Tensorboard& board, std::size_t number) {
    std::printf("\n== %s, %s ==\n%s\n", run_.norm.c_str(), run_.placement.c_str(),
                model_.summary().c_str());
    std::fflush(stdout);
    TrainingState state;
    describe(state, checkpoints);
    checkpoints.begin(number, state, step_);
    board.begin(number);
    parallel_.emplace(model_);
    if (run_.diverged_at < 0 && step_ < s_.steps) train(checkpoints, board);
    checkpoints.finish();
    board.finish();
    for (std::size_t i = 0; i < run_.validation_loss.size(); ++i) {
      std::printf("step %ld: validation loss %.4f\n", static_cast<long>(run_.evaluated_at[i]),
                  run_.validation_loss[i]);
    }
    if (run_.diverged_at >= 0) {
      std::printf("diverged at step %ld\n", static_cast<long>(run_.diverged_at));
    } else if (s_.sample > 0 && distributed::world().rank() == 0) {
      run_.sample = write_sample(model_, text_, s_);
    }
    std::fflush(stdout);
    return run_;
  }

 private:
  void describe(TrainingState& state, const Checkpoints& checkpoints) {
    state.track("model", model_).track("optimizer", optimizer_).track("step", step_);
    state.track("train_loss", run_.train_loss).track("gradient_norm", run_.gradient_norm);
    state.track("validation_loss", run_.validation_loss).track("evaluated_at", run_.evaluated_at);
    state.track("diverged_at", run_.diverged_at);
    state.option("program", "char_transformer").option("model", model_.describe());
    state.option("norm", run_.norm).option("placement", run_.placement);
    state.option("gate", s_.gate).option("qk_norm", s_.qk_norm).option("mlp", s_.mlp);
    state.option("heads", s_.heads).option("kv_heads", s_.kv_heads);
    state.option("context", s_.context).option("batch", s_.batch);
    state.option("accumulate", s_.accumulate).option("steps", s_.steps);
    state.option("lr", s_.lr).option("warmup", s_.warmup).option("clip", s_.clip);
    state.option("dropout", s_.dropout).option("seed", s_.seed);
    if (checkpoints.active()) state.option("data", checksum(text_.train));
  }

  /// Of the update that has just been made, with gradients after clipping.
  void show(Tensorboard& board, const Gradients& gradients, double rate) const {
    if (!board.active()) return;
    board.scalar("train/loss", step_, run_.train_loss.back());
    board.scalar("train/gradient_norm", step_, run_.gradient_norm.back());
    board.scalar("train/learning_rate", step_, rate);
    board.parameters(step_, optimizer_.parameters(), gradients);
  }

  void train(Checkpoints& checkpoints, Tensorboard& board) {
    const std::int64_t warmup = std::min(s_.warmup, s_.steps - 1);
    const Schedule schedule = warmup_cosine_schedule(s_.lr, warmup, s_.steps, 0.1 * s_.lr);
    TrainingWindows data(text_, s_, parallel_->shard(), step_ * s_.accumulate);
    Progress progress("training", s_.steps,
                      {.mode = parse_progress_mode(s_.progress), .unit = "tokens", .done = step_});
    const std::int64_t tokens = s_.batch * s_.context * s_.accumulate;  // of a step
    const std::int64_t first = step_;
    const auto start = std::chrono::steady_clock::now();
    evaluating_ = 0;
    while (step_ < s_.steps) {
      optimizer_.set_lr(schedule(step_));
      StepResult result = forward_backward(model_, data, s_.accumulate, *parallel_);
      run_.train_loss.push_back(result.loss);
      const std::optional<double> length = std::isfinite(result.loss)
                                               ? clipped(result.gradients, optimizer_, s_.clip)
                                               : std::nullopt;
      if (!length) {
        run_.diverged_at = step_;
        break;
      }
      run_.gradient_norm.push_back(*length);
      optimizer_.step(result.gradients);
      ++step_;
      progress.step(tokens, {{"loss", result.loss}, {"gradient norm", *length}});
      show(board, result.gradients, schedule(step_ - 1));
      const bool due = step_ % s_.evaluate_every == 0 || step_ == s_.steps;
      if (due && !evaluate(board)) break;
      checkpoints.after_step();
    }
    progress.finish();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() -
        evaluating_;
    run_.tokens_per_second = static_cast<double>((step_ - first) * tokens) / seconds;
  }

  /// Whether the loss is finite; the run has diverged when it is not.
  bool evaluate(Tensorboard& board) {
    const auto before = std::chrono::steady_clock::now();
    run_.validation_loss.push_back(validation_loss(model_, text_, s_.context, *parallel_));
    run_.evaluated_at.push_back(step_);
    board.scalar("validation/loss", step_, run_.validation_loss.back());
    evaluating_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
    if (std::isfinite(run_.validation_loss.back())) return true;
    run_.diverged_at = step_ - 1;
    return false;
  }

  const Text& text_;
  const Settings& s_;
  Decoder model_;
  std::optional<DataParallel> parallel_;  // from the state on that the run begins with
  AdamW optimizer_;
  std::int64_t step_ = 0;  // updates done
  Run run_;
  double evaluating_ = 0;  // seconds
};

void print_comparison(const std::vector<Run>& runs) {
  Table table({"norm", "placement", "parameters", "validation loss", "training loss",
               "largest gradient norm", "tokens/s"});
  for (const Run& run : runs) {
    double loss = 0;
    const std::size_t n = std::min<std::size_t>(50, run.train_loss.size());
    for (std::size_t i = run.train_loss.size() - n; i < run.train_loss.size(); ++i) {
      loss += run.train_loss[i] / static_cast<double>(n);
    }
    table.add_row({run.norm, run.placement, std::to_string(run.parameters),
                   run.diverged_at >= 0 ? fmt::format("diverged at {}", run.diverged_at)
                                        : fmt::format("{:.3f}", run.validation_loss.back()),
                   fmt::format("{:.3f}", loss),
                   run.gradient_norm.empty()
                       ? "-"
                       : fmt::format("{:.3g}", std::ranges::max(run.gradient_norm)),
                   fmt::format("{:.0f}", run.tokens_per_second)});
  }
  std::printf("\nTraining loss: mean of the last 50 steps. Losses in nats per character.\n%s",
              table.str().c_str());
}

nlohmann::json to_json(const Run& run) {
  return {{"norm", run.norm},
          {"placement", run.placement},
          {"parameters", run.parameters},
          {"train_loss", run.train_loss},
          {"gradient_norm", run.gradient_norm},
          {"validation_loss", run.validation_loss},
          {"evaluated_at", run.evaluated_at},
          {"diverged_at", run.diverged_at},
          {"tokens_per_second", run.tokens_per_second},
          {"sample", run.sample}};
}

void add_options(CLI::App& app, Settings& s) {
  const auto repeated = [&](const char* name, std::vector<std::string>& value, const char* text) {
    app.add_option(name, value, text)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  repeated("--norm", s.norms, "layer, rms, none or any other norm, with options; may be repeated");
  repeated("--placement", s.placements,
           "pre, post, sandwich, none, deepnorm, scaled_pre, b2t, resi_dual, output, hybrid, mix; "
           "may be repeated");
  app.add_option("--gate", s.gate, "none, rezero or layerscale")->capture_default_str();
  app.add_option("--qk-norm", s.qk_norm, "norm of queries and keys")->capture_default_str();
  app.add_option("--mlp", s.mlp, "gelu, gelu_tanh, relu or swiglu")->capture_default_str();
  app.add_flag("--rope", s.rope, "rotary positions instead of learned ones");
  app.add_flag_callback(
      "--no-bias", [&s] { s.bias = false; }, "linear maps without biases");
  add_number<std::int64_t>(app, "--layers", s.layers, "blocks", 1);
  add_number<std::int64_t>(app, "--dim", s.dim, "features", 1);
  add_number<std::int64_t>(app, "--heads", s.heads, "query heads", 1);
  add_number<std::int64_t>(app, "--kv-heads", s.kv_heads, "key and value heads (0: as heads)", 0);
  add_number<std::int64_t>(app, "--context", s.context, "characters of a window", 1);
  add_number<std::int64_t>(app, "--batch", s.batch, "windows per batch", 1);
  add_number<std::int64_t>(app, "--accumulate", s.accumulate, "batches per step", 1);
  add_number<std::int64_t>(app, "--steps", s.steps, "updates", 1);
  add_number<double>(app, "--lr", s.lr, "largest rate: a climb, then a cosine to a tenth", 0.0);
  add_number<std::int64_t>(app, "--warmup", s.warmup, "steps of the climb", 0);
  add_number<double>(app, "--weight-decay", s.weight_decay, "of AdamW, not of norms and biases",
                     0.0);
  add_number<double>(app, "--clip", s.clip, "largest norm of the gradient", 1e-12);
  add_number<double>(app, "--dropout", s.dropout, "probability of zero", 0.0, 0.999);
  add_number<std::uint64_t>(app, "--seed", s.seed, "of weights, windows and sample");
  add_number<int>(app, "--threads", s.threads, "changes the speed, never the numbers", 1,
                  MaxThreads);
  app.add_option("--text", s.text, "a file to learn: UTF-8, or any with --bytes");
  app.add_flag("--bytes", s.bytes, "one token per byte instead of per character");
  app.add_option("--data", s.data, "directory of known texts")->capture_default_str();
  add_number<std::int64_t>(app, "--sample", s.sample, "characters to write at the end", 0);
  app.add_option("--prompt", s.prompt,
                 "what the sample begins with (default: the text's first character)");
  add_number<double>(app, "--temperature", s.temperature, "of the sample; 0: likeliest", 0.0);
  add_number<std::int64_t>(app, "--top-k", s.top_k, "sample from the k likeliest (0: all)", 0);
  add_number<std::int64_t>(app, "--evaluate-every", s.evaluate_every, "steps between validations",
                           1);
  app.add_option("--json", s.json, "file for losses, gradient norms and the sample");
  app.add_option("--progress", s.progress, "auto, bar, plain or off")->capture_default_str();
  add_tensorboard_option(app, s.tensorboard);
  add_checkpoint_options(app, s.checkpoints);
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{"Trains a character-level Transformer under any norm and any place for it."};
  add_options(app, s);
  return run_program(app, argc, argv, [&] {
    if (s.norms.empty()) s.norms = {"layer"};
    if (s.placements.empty()) s.placements = {"pre"};
    std::vector<NormSpec> norms;
    for (const std::string& text : s.norms) {
      norms.push_back(checked_option("--norm", [&] { return NormSpec::parse(text); }));
    }
    std::vector<Placement> placements;
    for (const std::string& text : s.placements) {
      placements.push_back(checked_option("--placement", [&] { return Placement::parse(text); }));
    }
    checked_option("--progress", [&] { return parse_progress_mode(s.progress); });
    for (const NormSpec& norm : norms) {
      for (const Placement& placement : placements) {
        (void)Decoder(decoder_options(norm, placement, s, /*vocabulary=*/1));
      }
    }
    const JsonFile file(s.json);
    set_num_threads(s.threads);
    const TextSource source =
        load_text_source({.file = s.text, .directory = s.data, .text = text_options(s)});
    distributed::check_same(
        {{"the training text", source.text.train}, {"the validation text", source.text.validation}},
        distributed::world());
    checked_option("--prompt", [&] { return source.text.vocabulary.encode(s.prompt); });
    std::printf("%s\n%s\n%s", source.source.c_str(), library_report().c_str(),
                ranks_report().c_str());
    std::vector<std::string> names;
    for (const NormSpec& norm : norms) {
      for (const Placement& placement : placements) {
        names.push_back(to_string(norm) + "+" + to_string(placement));
      }
    }
    Checkpoints checkpoints(s.checkpoints, names);
    Tensorboard board(s.tensorboard, names);
    std::vector<Run> runs;
    for (const NormSpec& norm : norms) {
      for (const Placement& placement : placements) {
        Training training(norm, placement, source.text, s);
        runs.push_back(training.run(checkpoints, board, runs.size()));
      }
    }
    if (runs.size() > 1) print_comparison(runs);
    nlohmann::json result = to_json(runs.front());
    result["seed"] = s.seed;
    result["steps"] = s.steps;
    if (source.entropy) result["entropy"] = *source.entropy;
    if (runs.size() > 1) {
      for (const Run& run : runs) result["runs"].push_back(to_json(run));
    }
    file.write(result);
    return checkpoints.lost() ? 1 : 0;
  });
}
