#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>
#include <steadygrad/core/data/glyphs.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/core/random.hpp>
#include <string>
#include <vector>

namespace steady {
namespace {

constexpr std::int64_t Side = 28;
constexpr double HalfHeight = 9.5;  // pixels from the centre to y = 1 of a skeleton

struct Point {
  double x;
  double y;
};
using Stroke = std::vector<Point>;
using Skeleton = std::vector<Stroke>;

/// Points of an ellipse from angle `from` to `to` in degrees; y points down, so 270 is the top.
Stroke arc(Point centre, Point radius, double from, double to) {
  Stroke stroke;
  const int pieces = static_cast<int>(std::abs(to - from) / 24.0) + 1;
  for (int i = 0; i <= pieces; ++i) {
    const double angle = (from + (to - from) * i / pieces) * std::numbers::pi / 180.0;
    stroke.push_back(
        {centre.x + radius.x * std::cos(angle), centre.y + radius.y * std::sin(angle)});
  }
  return stroke;
}

Stroke joined(Stroke a, const Stroke& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// The strokes of a digit in the box [-1, 1] x [-1, 1]; some digits have two ways to be written.
Skeleton skeleton(std::int64_t digit, bool variant) {
  switch (digit) {
    case 0:
      return {arc({0, 0}, {0.6, 0.95}, 0, 360)};
    case 1:
      return variant ? Skeleton{{{0, -0.95}, {0, 0.95}}}
                     : Skeleton{{{-0.3, -0.6}, {0.1, -0.95}, {0.1, 0.95}}};
    case 2:
      return {joined(arc({0, -0.42}, {0.55, 0.52}, 180, 390), {{-0.6, 0.95}, {0.62, 0.95}})};
    case 3:
      return {
          joined(arc({0, -0.48}, {0.5, 0.47}, 200, 450), arc({0, 0.45}, {0.57, 0.5}, 270, 520))};
    case 4:
      return variant
                 ? Skeleton{{{-0.5, -0.9}, {-0.55, 0.1}, {0.6, 0.1}}, {{0.35, -0.7}, {0.35, 0.95}}}
                 : Skeleton{{{0.3, 0.95}, {0.3, -0.95}, {-0.62, 0.35}, {0.65, 0.35}}};
    case 5:
      return {joined({{0.55, -0.95}, {-0.4, -0.95}, {-0.48, -0.1}},
                     arc({-0.02, 0.38}, {0.56, 0.56}, 225, 500))};
    case 6:
      return {
          joined(arc({0.45, 0.4}, {0.97, 1.35}, 266, 180), arc({0, 0.45}, {0.52, 0.5}, 180, 540))};
    case 7:
      return variant
                 ? Skeleton{{{-0.55, -0.95}, {0.55, -0.95}, {-0.15, 0.95}}, {{-0.3, 0}, {0.45, 0}}}
                 : Skeleton{{{-0.55, -0.95}, {0.55, -0.95}, {-0.15, 0.95}}};
    case 8:
      return {arc({0, -0.48}, {0.46, 0.47}, 90, 450), arc({0, 0.48}, {0.56, 0.47}, 270, 630)};
    default:
      return {joined(arc({0, -0.43}, {0.52, 0.52}, 0, 360), {{0.45, 0.2}, {0.3, 0.95}})};
  }
}

struct Affine {
  double xx, xy, yx, yy, dx, dy;
  [[nodiscard]] Point operator()(Point p) const {
    return {xx * p.x + xy * p.y + dx, yx * p.x + yy * p.y + dy};
  }
};

/// rotation * shear * scale, then a shift; from skeleton units to pixels.
Affine random_affine(Random& random) {
  const double angle = random.uniform(-0.22, 0.22);
  const double shear = random.uniform(-0.3, 0.3);
  const double sx = HalfHeight * random.uniform(0.75, 1.1);
  const double sy = HalfHeight * random.uniform(0.8, 1.05);
  const double c = std::cos(angle);
  const double s = std::sin(angle);
  const double centre = (static_cast<double>(Side) - 1.0) / 2.0;
  return {c * sx,
          (c * shear - s) * sy,
          s * sx,
          (s * shear + c) * sy,
          centre + random.uniform(-2.0, 2.0),
          centre + random.uniform(-2.0, 2.0)};
}

double squared_distance(Point p, Point a, Point b) {
  const Point along{b.x - a.x, b.y - a.y};
  const double length2 = along.x * along.x + along.y * along.y;
  const double t =
      length2 > 0.0
          ? std::clamp(((p.x - a.x) * along.x + (p.y - a.y) * along.y) / length2, 0.0, 1.0)
          : 0.0;
  const double x = p.x - a.x - t * along.x;
  const double y = p.y - a.y - t * along.y;
  return x * x + y * y;
}

using Distances = std::array<double, Side * Side>;

/// Lowers the squared distance of each pixel within `reach` of the segment.
void add_segment(Distances& nearest, Point a, Point b, double reach) {
  const auto first = [&](double u, double v) {
    return static_cast<std::int64_t>(std::max(0.0, std::ceil(std::min(u, v) - reach)));
  };
  const auto last = [&](double u, double v) {
    return static_cast<std::int64_t>(
        std::min(static_cast<double>(Side - 1), std::floor(std::max(u, v) + reach)));
  };
  for (std::int64_t y = first(a.y, b.y); y <= last(a.y, b.y); ++y) {
    for (std::int64_t x = first(a.x, b.x); x <= last(a.x, b.x); ++x) {
      double& cell = nearest[static_cast<std::size_t>(y * Side + x)];
      cell =
          std::min(cell, squared_distance({static_cast<double>(x), static_cast<double>(y)}, a, b));
    }
  }
}

/// Fills pixels in [0, 1]: coverage falls from 1 to 0 over one pixel at the edge of the stroke.
void draw(std::int64_t digit, Random& random, std::span<double> pixels) {
  constexpr double Far = 1e9;
  Skeleton strokes = skeleton(digit, random.uniform() < 0.5);
  const Affine map = random_affine(random);
  const double radius = random.uniform(0.7, 1.6);
  const double strength = random.uniform(0.75, 1.0);
  const double noise = random.uniform(0.0, 0.08);
  Distances nearest;
  nearest.fill(Far);
  for (Stroke& stroke : strokes) {
    for (Point& p : stroke) {
      p = map({p.x + 0.045 * random.normal(), p.y + 0.045 * random.normal()});
    }
    for (std::size_t i = 1; i < stroke.size(); ++i) {
      add_segment(nearest, stroke[i - 1], stroke[i], radius + 1.0);
    }
  }
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const double coverage = std::clamp(radius + 0.5 - std::sqrt(nearest[i]), 0.0, 1.0);
    pixels[i] = std::clamp(strength * coverage + noise * random.normal(), 0.0, 1.0);
  }
}

Dataset draw_part(const char* part, std::int64_t n, const GlyphOptions& options) {
  STEADY_CHECK(Error, n >= 1 && options.deviation > 0.0,
               "make_glyphs: needs samples in the {} part and deviation > 0; got {} and {}", part,
               n, options.deviation);
  Dataset data{Tensor::empty({n, Side, Side, 1}), Tensor::empty({n}, Dtype::I64)};
  const auto x = data.x.mutable_data<float>("make_glyphs");
  const auto y = data.y.mutable_data<std::int64_t>("make_glyphs");
  parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
    std::array<double, Side * Side> pixels;
    for (std::int64_t i = begin; i < end; ++i) {
      Random random(options.seed, fmt::format("glyphs/{}/{}", part, i));
      draw(i % 10, random, pixels);
      y[static_cast<std::size_t>(i)] = i % 10;
      const auto image = x.subspan(static_cast<std::size_t>(i) * pixels.size(), pixels.size());
      std::transform(pixels.begin(), pixels.end(), image.begin(), [&](double pixel) {
        return static_cast<float>((pixel - options.mean) / options.deviation);
      });
    }
  });
  return data;
}

}  // namespace

TrainTest make_glyphs(const GlyphOptions& options) {
  return {draw_part("train", options.train, options), draw_part("test", options.test, options)};
}

}  // namespace steady
