#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <steadygrad/core/ops/elementwise.hpp>
#include <steadygrad/core/ops/loss.hpp>
#include <steadygrad/core/ops/reduce.hpp>
#include <steadygrad/core/ops/shaping.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/conv2d.hpp>
#include <steadygrad/layers/linear.hpp>
#include <steadygrad/layers/norm/batch_norm.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <steadygrad/optim/schedule.hpp>
#include <steadygrad/optim/sgd.hpp>

#include "examples/claims/experiments.hpp"
#include "examples/claims/measure.hpp"

namespace steady::examples::claims {
namespace {

constexpr std::int64_t Side = 12;
constexpr std::int64_t Classes = 10;
constexpr std::int64_t Train = 2048;
constexpr std::int64_t Test = 1024;
constexpr int Epochs = 2;

// --- images: ten random patterns, shifted, of varying contrast, in noise ---

/// A random 5 x 5 pattern, stretched to the image's size by linear interpolation.
std::vector<double> pattern(Random& random) {
  constexpr int Cells = 5;
  std::array<double, std::size_t{Cells} * Cells> coarse{};
  for (double& v : coarse) v = 1.5 * random.normal();
  std::vector<double> image(Side * Side);
  const auto place = [](std::int64_t i) { return double(i) * (Cells - 1) / double(Side - 1); };
  for (std::int64_t i = 0; i < Side; ++i) {
    for (std::int64_t j = 0; j < Side; ++j) {
      const int top = std::min(int(place(i)), Cells - 2);
      const int left = std::min(int(place(j)), Cells - 2);
      const double y = place(i) - top;
      const double x = place(j) - left;
      const auto at = [&](int a, int b) { return coarse[std::size_t(a) * Cells + std::size_t(b)]; };
      image[std::size_t(i) * Side + std::size_t(j)] =
          (1 - y) * ((1 - x) * at(top, left) + x * at(top, left + 1)) +
          y * ((1 - x) * at(top + 1, left) + x * at(top + 1, left + 1));
    }
  }
  return image;
}

struct Images {
  Tensor x;  // [N, Side, Side, 1]
  Tensor y;  // [N], i64
};

Images make_images(std::int64_t count, std::uint64_t seed, const char* name) {
  Random patterns(seed, "patterns");
  std::vector<std::vector<double>> prototypes;
  for (int c = 0; c < Classes; ++c) prototypes.push_back(pattern(patterns));
  Images images{Tensor::empty({count, Side, Side, 1}), random_labels({count}, Classes, seed, name)};
  Random random(seed, fmt::format("{}/images", name));
  const auto pixels = images.x.mutable_data<float>();
  const auto labels = images.y.data<std::int64_t>();
  for (std::size_t n = 0; n < labels.size(); ++n) {
    const std::vector<double>& prototype = prototypes[std::size_t(labels[n])];
    const std::int64_t down = random.below(5) + Side - 2;
    const std::int64_t right = random.below(5) + Side - 2;
    const double contrast = random.uniform(0.5, 1.5);
    for (std::int64_t i = 0; i < Side; ++i) {
      for (std::int64_t j = 0; j < Side; ++j) {
        const std::int64_t from = (i + down) % Side * Side + (j + right) % Side;
        pixels[n * std::size_t(Side * Side) + std::size_t(i * Side + j)] =
            static_cast<float>(contrast * prototype[std::size_t(from)] + 0.7 * random.normal());
      }
    }
  }
  return images;
}

Images rows_of(const Images& images, std::span<const std::int64_t> rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  Images batch{{}, Tensor::empty({count}, Dtype::I64)};
  const Tensor flat = reshape(images.x, {images.x.dim(0), Side * Side});
  batch.x =
      reshape(gather_rows(flat, Tensor::from<std::int64_t>({count}, rows)), {count, Side, Side, 1});
  std::ranges::transform(rows, batch.y.mutable_data<std::int64_t>().begin(), [&](std::int64_t r) {
    return images.y.data<std::int64_t>()[static_cast<std::size_t>(r)];
  });
  return batch;
}

// --- the net: five 3 x 3 convolutions down to maps of one pixel ---

struct Net : Layer {
  struct Options {
    bool grouped = false;                                // GroupNorm in place of BatchNorm
    std::array<std::int64_t, 5> strides{2, 2, 2, 2, 1};  // maps 6, 3, 2, 1, 1
  };
  explicit Net(const Options& options) : o(options) {
    constexpr std::array<std::int64_t, 6> Channels{1, 24, 24, 48, 48, 48};
    for (std::size_t l = 0; l < o.strides.size(); ++l) {
      convs.push_back(&add<Conv2d>(fmt::format("conv{}", l),
                                   {.in = Channels[l],
                                    .out = Channels[l + 1],
                                    .kernel = 3,
                                    .stride = o.strides[l],
                                    .padding = 1,
                                    .bias = false,
                                    .weight_init = kaiming_normal_init(std::sqrt(2.0))}));
      const std::string norm = fmt::format("norm{}", l);
      const std::int64_t features = Channels[l + 1];
      const char* spec = o.grouped ? "group(groups=8)" : "batch";
      norms.push_back(&add_norm(norm, NormSpec::parse(spec), features));
    }
  }

  Options o;
  std::vector<Conv2d*> convs;
  std::vector<Layer*> norms;
  Linear& head = add<Linear>("head", {.in = 48, .out = Classes});

  Tensor forward(const Tensor& x) override {
    Tensor h = x;
    for (std::size_t l = 0; l < convs.size(); ++l) h = relu((*norms[l])((*convs[l])(h)));
    return head(mean(h, {1, 2}));
  }
};

struct Data {
  Images train, test;
};

/// Test error in percent after two epochs at a rate of 0.1 * batch / 32 that falls as a cosine.
double error(const Net::Options& options, std::int64_t batch, const Data& data,
             std::uint64_t seed) {
  Net net(options);
  net.initialize(seed);
  const std::int64_t per_epoch = Train / batch;
  const double lr = 0.1 * double(batch) / 32;
  Sgd optimizer(net.parameters(), {.lr = lr, .momentum = 0.9});
  const Schedule rate = cosine_schedule(lr, Epochs * per_epoch);
  for (int epoch = 0; epoch < Epochs; ++epoch) {
    Random random(seed, fmt::format("epoch/{}", epoch));
    const std::vector<std::int64_t> order = random.permutation(Train);
    for (std::int64_t step = 0; step < per_epoch; ++step) {
      const Images b = rows_of(
          data.train, std::span(order).subspan(std::size_t(step * batch), std::size_t(batch)));
      Tape tape;
      const Tensor loss = cross_entropy(net(b.x), b.y);
      optimizer.set_lr(rate(optimizer.updates()));
      optimizer.step(tape.backward(loss));
    }
  }
  net.eval();
  return 100 - 100 * double(count_correct(net(data.test.x), data.test.y)) / double(Test);
}

/// Largest | |y| - 1 | of a BatchNorm over maps of one pixel.
double distance_from_one(std::int64_t batch, std::uint64_t seed) {
  const Tensor x = normal_tensor({batch, 1, 1, 64}, seed, "pixels", {.dtype = Dtype::F64});
  const Tensor y = batch_norm(x, {}, {}, 0.0).y;
  double worst = 0;
  for (const double v : y.data<double>()) worst = std::fmax(worst, std::abs(std::abs(v) - 1));
  return worst;
}

}  // namespace

void small_batch(Findings& findings, std::uint64_t seed) {
  const Data data{make_images(Train, seed, "train"), make_images(Test, seed, "test")};
  const auto jump = [&](const Net::Options& options) {
    return error(options, 2, data, seed) - error(options, 32, data, seed);
  };
  const double batch_jump = jump({});
  const double group_jump = jump({.grouped = true});
  const double large_maps = jump({.strides = {1, 2, 1, 1, 1}});
  const Band breaks = above(20);
  const Band holds = below(3);
  const Band exact = below(1e-9);
  findings.check("BN, error at B=2 minus B=32, points", std::nullopt, batch_jump, breaks);
  findings.check("GN, error at B=2 minus B=32, points", 0, group_jump, holds);
  findings.check("BN, B=2, one pixel, |y| - 1", 0, distance_from_one(2, seed), exact);
  findings.control("GN", group_jump, breaks);
  findings.control("BN of maps of 6 to 12 pixels", large_maps, breaks);
  findings.control("BN", batch_jump, holds);
  findings.control("BN, B=4, one pixel", distance_from_one(4, seed), exact);
}

}  // namespace steady::examples::claims
