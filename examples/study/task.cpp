#include "examples/study/task.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <steadygrad/steadygrad.hpp>

#include "examples/common/digits.hpp"
#include "examples/common/text_source.hpp"
#include "examples/study/models.hpp"

namespace steady::examples {
namespace {

constexpr std::int64_t Features = 64;
constexpr std::int64_t Classes = 10;

struct Scaling {
  double shift = 0;
  double factor = 1;
};

/// How column `f` of x, [N, F], is scaled.
Scaling scaling_of(const Tensor& x, std::int64_t f, const std::string& input) {
  if (input == "raw") return {};
  const auto values = x.data<float>();
  const auto n = static_cast<double>(x.dim(0));
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  double sum = 0;
  const auto each = [&](auto&& use) {
    for (auto i = static_cast<std::size_t>(f); i < values.size();
         i += static_cast<std::size_t>(x.dim(1))) {
      use(double{values[i]});
    }
  };
  each([&](double v) {
    low = std::min(low, v);
    high = std::max(high, v);
    sum += v;
  });
  if (input == "minmax") return {low, 1 / (high - low)};
  const double mean = sum / n;
  double squares = 0;
  each([&](double v) { squares += (v - mean) * (v - mean); });
  return {mean, 1 / std::sqrt(squares / n)};
}

void rescale(Tensor& x, std::int64_t f, const Scaling& scaling) {
  const auto values = x.mutable_data<float>("rescale");
  for (auto i = static_cast<std::size_t>(f); i < values.size();
       i += static_cast<std::size_t>(x.dim(1))) {
    values[i] = static_cast<float>((double{values[i]} - scaling.shift) * scaling.factor);
  }
}

Dataset draw_tabular(std::int64_t n, const std::vector<double>& means, const std::string& part,
                     std::uint64_t seed) {
  Dataset set{Tensor::empty({n, Features}), Tensor::empty({n}, Dtype::I64)};
  const auto x = set.x.mutable_data<float>("draw_tabular");
  const auto y = set.y.mutable_data<std::int64_t>("draw_tabular");
  Random random(seed, "tabular " + part);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t label = i % Classes;
    y[static_cast<std::size_t>(i)] = label;
    for (std::int64_t f = 0; f < Features; ++f) {
      const double scale = std::pow(10.0, -2 + 4 * static_cast<double>(f) / (Features - 1));
      const double value =
          10 + 0.5 * means[static_cast<std::size_t>(label * Features + f)] + random.normal();
      x[static_cast<std::size_t>(i * Features + f)] = static_cast<float>(scale * value);
    }
  }
  return set;
}

/// The batches of the epoch that was asked for last: Batches or Windows.
template <class Epoch>
class EpochCache {
 public:
  using Make = std::function<Epoch(std::int64_t number)>;
  explicit EpochCache(Make make) : make_(std::move(make)), epoch_(make_(0)) {}

  /// Batch `step` of the epochs one after the other, each as long as the first.
  Dataset at(std::int64_t step) {
    const std::int64_t number = step / epoch_.count();
    if (number != number_) {
      epoch_ = make_(number);
      number_ = number;
    }
    const Batch batch = epoch_[step % epoch_.count()];
    return {batch.x, batch.y};
  }

 private:
  Make make_;
  Epoch epoch_;
  std::int64_t number_ = 0;
};

template <class Epoch>
std::vector<Dataset> all_of(const Epoch& epoch, std::int64_t most) {
  std::vector<Dataset> pieces;
  for (std::int64_t i = 0; i < std::min(most, epoch.count()); ++i) {
    const Batch batch = epoch[i];
    pieces.push_back({batch.x, batch.y});
  }
  return pieces;
}

/// Samples drawn in epochs, or windows of a text.
template <class Epoch>
class EpochTask : public Task {
 public:
  EpochTask(std::unique_ptr<Layer> model, typename EpochCache<Epoch>::Make epochs,
            std::vector<Dataset> validation, std::string source)
      : model_(std::move(model)),
        epochs_(std::move(epochs)),
        validation_(std::move(validation)),
        source_(std::move(source)) {}

  Layer& model() override { return *model_; }
  Dataset training(std::int64_t step) override { return epochs_.at(step); }
  std::vector<Dataset> validation() const override { return validation_; }
  std::string source() const override { return source_; }

 private:
  std::unique_ptr<Layer> model_;
  EpochCache<Epoch> epochs_;
  std::vector<Dataset> validation_;
  std::string source_;
};

std::unique_ptr<Task> make_sample_task(std::unique_ptr<Layer> model, const TrainTest& data,
                                       const Cell& cell, std::string source) {
  const auto epochs = [train = data.train, size = cell.batch, seed = cell.seed](std::int64_t n) {
    return batches(train, {.size = size, .seed = seed, .epoch = n, .tail = Tail::Drop});
  };
  return std::make_unique<EpochTask<Batches>>(
      std::move(model), epochs, all_of(batches(data.test, {.size = 256, .shuffle = false}), 100),
      std::move(source));
}

std::unique_ptr<Task> make_text_task(const Cell& cell, const StudyData& data) {
  constexpr std::int64_t Context = 32;
  const TextSource text =
      load_text_source({.directory = data.directory, .text = {.context = Context}});
  const auto epochs = [train = text.text.train, size = cell.batch,
                       seed = cell.seed](std::int64_t n) {
    return windows(train, {.context = Context, .size = size, .seed = seed, .epoch = n});
  };
  const Windows validation(text.text.validation,
                           {.context = Context, .size = 64, .shuffle = false});
  return std::make_unique<EpochTask<Windows>>(
      make_study_model(cell, {.classes = text.text.vocabulary.size(), .context = Context}), epochs,
      all_of(validation, 4), text.source);
}

/// Digits as the cell wants its pixels; standardize is what the loader gives.
TrainTest digit_data(Digits digits, const std::string& input) {
  if (input == "standardize") return std::move(digits.data);
  const double factor = input == "raw" ? 255.0 : 1.0;  // raw pixels, or minmax
  for (Dataset* part : {&digits.data.train, &digits.data.test}) {
    Tensor x = part->x.detached_copy();
    for (float& v : x.mutable_data<float>("digit_data")) {
      v = static_cast<float>((double{v} * 0.3081 + 0.1307) * factor);
    }
    part->x = x;
  }
  return std::move(digits.data);
}

void scale_weights(Layer& model, double factor) {
  if (factor == 1) return;
  for (const Parameter& p : model.parameters()) {
    if (p.role != Role::Weight) continue;
    Tensor value = p.value;
    for (float& w : value.mutable_data<float>("scale_weights")) {
      w = static_cast<float>(double{w} * factor);
    }
  }
}

}  // namespace

TrainTest make_tabular(const std::string& input, std::uint64_t seed) {
  std::vector<double> means(static_cast<std::size_t>(Classes * Features));
  Random random(seed, "tabular means");
  for (double& mean : means) mean = random.normal();
  TrainTest data{draw_tabular(4096, means, "train", seed), draw_tabular(1024, means, "test", seed)};
  for (std::int64_t f = 0; f < Features; ++f) {
    const Scaling scaling = scaling_of(data.train.x, f, input);
    rescale(data.train.x, f, scaling);
    rescale(data.test.x, f, scaling);
  }
  return data;
}

std::unique_ptr<Task> make_task(const Cell& cell, const StudyData& data) {
  std::unique_ptr<Task> task;
  if (cell.model == "transformer") {
    task = make_text_task(cell, data);
  } else if (cell.model == "mlp" || cell.model == "residual_mlp") {
    task = make_sample_task(make_study_model(cell, {.features = Features, .classes = Classes}),
                            make_tabular(cell.input, cell.seed), cell,
                            "ten generated Gaussian classes in 64 features");
  } else {
    Digits digits = load_digits({.directory = data.directory, .limit = 8192});
    std::string source = digits.source;
    task = make_sample_task(make_study_model(cell, {.features = 1, .classes = Classes}),
                            digit_data(std::move(digits), cell.input), cell, std::move(source));
  }
  task->model().initialize(cell.seed);
  scale_weights(task->model(), cell.init_scale);
  return task;
}

}  // namespace steady::examples
