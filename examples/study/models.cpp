#include "examples/study/models.hpp"

#include <fmt/format.h>
#include <cmath>
#include <steadygrad/steadygrad.hpp>
#include <vector>

namespace steady::examples {
namespace {

/// norm(linear(x)) or norm(conv(x)), then relu; in a residual stack added to x.
class Stage : public Layer {
 public:
  struct Options {
    bool convolution = false;
    bool residual = false;
    std::int64_t in = 0;
    std::int64_t out = 0;
    std::int64_t stride = 1;
    NormSpec norm = {};
    Init init = {};
  };
  explicit Stage(Options options) : o(std::move(options)) {
    const bool bias = o.norm.name() == "none";
    if (o.convolution) {
      map_ = &add<Conv2d>("conv", {.in = o.in,
                                   .out = o.out,
                                   .kernel = 3,
                                   .stride = o.stride,
                                   .padding = 1,
                                   .bias = bias,
                                   .weight_init = o.init});
    } else {
      map_ =
          &add<Linear>("linear", {.in = o.in, .out = o.out, .bias = bias, .weight_init = o.init});
    }
    norm_ = &add_norm("norm", o.norm, o.out);
  }
  const Options o;

  Tensor forward(const Tensor& x) override {
    const Tensor h = relu((*norm_)((*map_)(x)));
    return o.residual ? steady::add(x, h) : h;
  }
  std::string describe() const override {
    return fmt::format("Stage({}, {}{})", o.in, o.out, o.residual ? ", residual" : "");
  }

 private:
  Layer* map_ = nullptr;
  Layer* norm_ = nullptr;
};

/// Stages and a linear head; images are averaged over their positions before it.
class Stack : public Layer {
 public:
  struct Options {
    Cell cell;
    ModelSizes sizes;
  };
  explicit Stack(Options options) : o(std::move(options)) {
    const Cell& cell = o.cell;
    const NormSpec norm = NormSpec::parse(cell.norm);
    images_ = cell.model.find("cnn") != std::string::npos;
    strided_ = cell.model == "strided_cnn";
    const Init init = cell.init == "he" ? kaiming_normal_init(std::sqrt(2.0)) : Init{};
    const bool residual = cell.model.starts_with("residual");
    const std::int64_t depth = strided_ ? 5 : cell.depth;
    std::int64_t features = o.sizes.features;
    for (std::int64_t i = 0; i < depth; ++i) {
      const std::int64_t out = strided_ && i >= 2 ? 2 * cell.width : cell.width;
      stages_.push_back(
          &add<Stage>(fmt::format("stage{}", i + 1), {.convolution = images_,
                                                      .residual = residual && i > 0,
                                                      .in = features,
                                                      .out = out,
                                                      .stride = strided_ && i < 4 ? 2 : 1,
                                                      .norm = norm,
                                                      .init = init}));
      features = out;
    }
    head_ = &add<Linear>("head", {.in = features, .out = o.sizes.classes});
  }
  const Options o;

  Tensor forward(const Tensor& x) override {
    Tensor h = strided_ ? avg_pool2d(x, 2) : x;
    const std::size_t depth = stages_.size();
    for (std::size_t i = 0; i < depth; ++i) {
      h = (*stages_[i])(h);
      const bool pool = images_ && !strided_ && (i == depth / 3 || i == 2 * depth / 3);
      if (pool && h.dim(1) > 3) h = max_pool2d(h, 2);
    }
    return (*head_)(images_ ? global_avg_pool2d(h) : h);
  }
  std::string describe() const override { return o.cell.model; }

 private:
  bool images_ = false;
  bool strided_ = false;
  std::vector<Stage*> stages_;
  Linear* head_ = nullptr;
};

std::unique_ptr<Layer> make_transformer(const Cell& cell, const ModelSizes& sizes) {
  const std::int64_t heads = cell.width % 4 == 0 ? 4 : 1;
  Decoder::Options options = Decoder::gpt2({.vocab = sizes.classes,
                                            .context = sizes.context,
                                            .dim = cell.width,
                                            .layers = cell.depth,
                                            .heads = heads});
  options.hidden = 2 * cell.width;
  options.norm = NormSpec::parse(cell.norm);
  options.placement = Placement::parse(cell.placement);
  options.bias = false;
  options.init_std = 1 / std::sqrt(static_cast<double>(cell.width));
  options.scale_residual_init = false;
  return std::make_unique<Decoder>(options);
}

}  // namespace

std::unique_ptr<Layer> make_study_model(const Cell& cell, const ModelSizes& sizes) {
  if (cell.model == "transformer") return make_transformer(cell, sizes);
  return std::make_unique<Stack>(Stack::Options{cell, sizes});
}

}  // namespace steady::examples
