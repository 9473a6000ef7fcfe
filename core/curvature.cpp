#include <steadygrad/core/curvature.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/random.hpp>
#include <steadygrad/core/state_update.hpp>
#include <steadygrad/core/tape.hpp>

namespace steady {
namespace {

using Flat = std::vector<double>;

void check_fit(const char* name, std::span<const Tensor> leaves, std::span<const Tensor> v) {
  STEADY_CHECK(Error, !leaves.empty(), "{}: needs at least one leaf", name);
  STEADY_CHECK(ShapeError, v.size() == leaves.size(),
               "{}: needs one vector per leaf; got {} for {} leaves", name, v.size(),
               leaves.size());
  for (std::size_t i = 0; i < v.size(); ++i) {
    STEADY_CHECK(
        ShapeError,
        v[i].defined() && v[i].shape() == leaves[i].shape() && v[i].dtype() == leaves[i].dtype(),
        "{}: a vector has its leaf's shape and dtype; got {} for leaf {} {}", name, describe(v[i]),
        i, describe(leaves[i]));
  }
}

template <class Use>
void with_values(const Tensor& t, Use&& use) {
  if (t.dtype() == Dtype::F32) {
    use(t.data<float>());
  } else {
    use(t.data<double>());
  }
}

Flat flatten_all(std::span<const Tensor> tensors) {
  Flat flat;
  for (const Tensor& t : tensors) {
    with_values(t, [&](auto values) { flat.insert(flat.end(), values.begin(), values.end()); });
  }
  return flat;
}

/// The inverse of flatten_all, rounded to the dtypes of `like`.
std::vector<Tensor> unflatten(const Flat& flat, std::span<const Tensor> like) {
  std::vector<Tensor> tensors;
  std::size_t at = 0;
  const auto fill = [&](auto values) {
    for (auto& value : values) value = static_cast<std::decay_t<decltype(value)>>(flat[at++]);
  };
  for (const Tensor& t : like) {
    Tensor& out = tensors.emplace_back(Tensor::empty(t.shape(), t.dtype()));
    if (t.dtype() == Dtype::F32) {
      fill(out.mutable_data<float>("unflatten"));
    } else {
      fill(out.mutable_data<double>("unflatten"));
    }
  }
  return tensors;
}

double dot(const Flat& a, const Flat& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double norm(const Flat& a) { return std::sqrt(dot(a, a)); }

/// y += factor * x
void add(Flat& y, double factor, const Flat& x) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += factor * x[i];
}

void scale(Flat& y, double factor) {
  for (double& value : y) value *= factor;
}

/// The gradients of the leaves in their order, zeros where backward did not reach.
std::vector<Tensor> in_order(const Gradients& gradients, std::span<const Tensor> leaves) {
  std::vector<Tensor> result;
  for (const Tensor& leaf : leaves) {
    const Tensor* gradient = gradients.find(leaf);
    result.push_back(gradient != nullptr ? *gradient : Tensor::zeros(leaf.shape(), leaf.dtype()));
  }
  return result;
}

/// The straight line w + t * direction through the present leaves w; every look puts them back.
class Line {
 public:
  struct Point {
    double loss;
    Flat gradient;
  };

  Line(const LossFunction& loss, std::span<const Tensor> leaves, Flat direction)
      : loss_(loss),
        leaves_(leaves.begin(), leaves.end()),
        origin_(flatten_all(leaves)),
        direction_(std::move(direction)) {
    for (const Tensor& leaf : leaves) original_.push_back(leaf.detached_copy());
  }
  [[nodiscard]] const Flat& origin() const { return origin_; }
  [[nodiscard]] const Flat& direction() const { return direction_; }
  void turn(Flat direction) { direction_ = std::move(direction); }

  Point at(double t) {
    const NoStateUpdate still;
    if (t != 0) {
      Flat moved = origin_;
      add(moved, t, direction_);
      move_to(unflatten(moved, original_));
    }
    try {
      Tape tape;
      const Tensor value = loss_();
      Point point{value.item(), flatten_all(in_order(tape.backward(value), leaves_))};
      move_to(original_);
      return point;
    } catch (...) {
      move_to(original_);
      throw;
    }
  }

 private:
  void move_to(const std::vector<Tensor>& values) {
    for (std::size_t i = 0; i < leaves_.size(); ++i) leaves_[i].copy_from(values[i], "curvature");
  }

  const LossFunction& loss_;
  std::vector<Tensor> leaves_;
  Flat origin_;
  Flat direction_;
  std::vector<Tensor> original_;
};

/// Symmetric tridiagonal matrix: diagonal a, off-diagonal b (one shorter).
struct Tridiagonal {
  std::vector<double> a;
  std::vector<double> b;

  /// Eigenvalues above x: the sign changes of the pivots of T - x                [Sturm sequence]
  [[nodiscard]] int above(double x) const {
    int count = 0;
    double pivot = 1;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double coupling = i == 0 ? 0 : b[i - 1] * b[i - 1];
      pivot = a[i] - x - (i == 0 ? 0 : coupling / pivot);
      if (pivot == 0) pivot = std::numeric_limits<double>::min();
      if (pivot > 0) ++count;
    }
    return count;
  }

  /// The largest eigenvalue, by bisection between Gershgorin's bounds until neighbours remain.
  [[nodiscard]] double largest() const {
    double low = a[0];
    double high = a[0];
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double radius = (i > 0 ? std::abs(b[i - 1]) : 0) + (i < b.size() ? std::abs(b[i]) : 0);
      low = std::max(low, a[i]);
      high = std::max(high, a[i] + radius);
    }
    for (;;) {
      const double middle = low + (high - low) / 2;
      if (!(middle > low && middle < high)) return high;
      (above(middle) > 0 ? low : high) = middle;
    }
  }

  /// |last component| of the unit eigenvector of `value`. The recurrence runs from the last row to
  /// the first, the direction in which the vector of an outer eigenvalue grows.
  [[nodiscard]] double last_component(double value) const {
    double last = 1;
    double squares = 1;
    double after = 0;
    double at = 1;
    for (std::size_t i = a.size() - 1; i > 0; --i) {
      const double coupling = i + 1 < a.size() ? b[i] * after : 0;
      const double before = ((value - a[i]) * at - coupling) / b[i - 1];
      after = at;
      at = before;
      squares += at * at;
      if (squares > 1e200) {
        for (double* factor : {&last, &after, &at}) *factor *= 1e-100;
        squares *= 1e-200;
      }
    }
    return std::abs(last) / std::sqrt(squares);
  }
};

/// One Lanczos step: the next basis vector from w = A q_k, orthogonal to all q; returns its length.
double orthogonalize(Flat& w, const std::vector<Flat>& basis) {
  for (int pass = 0; pass < 2; ++pass) {  // twice is enough  [Parlett]
    for (const Flat& q : basis) add(w, -dot(w, q), q);
  }
  return norm(w);
}

Flat start_vector(std::size_t size, std::uint64_t seed) {
  Flat q(size);
  Random random(seed, "top_eigenvalue");
  for (double& value : q) value = random.normal();
  scale(q, 1 / norm(q));
  return q;
}

}  // namespace

std::vector<Tensor> hessian_vector_product(const LossFunction& loss, std::span<const Tensor> leaves,
                                           std::span<const Tensor> v) {
  check_fit("hessian_vector_product", leaves, v);
  const NoStateUpdate still;
  Tape tape;
  const Gradients first = tape.backward(loss(), {.record = true});
  std::vector<Tensor> outputs;
  std::vector<Tensor> cotangents;
  bool any = false;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Tensor* gradient = first.find(leaves[i]);
    if (gradient == nullptr) continue;
    any = any || needs_gradient(*gradient);
    outputs.push_back(*gradient);
    cotangents.push_back(v[i]);
  }
  return in_order(any ? tape.backward(outputs, cotangents) : Gradients{}, leaves);
}

std::vector<Tensor> hessian_vector_difference(const LossFunction& loss,
                                              std::span<const Tensor> leaves,
                                              std::span<const Tensor> v, double step) {
  check_fit("hessian_vector_difference", leaves, v);
  STEADY_CHECK(Error, step > 0 && std::isfinite(step),
               "hessian_vector_difference: step must be positive; got {}", step);
  Line line(loss, leaves, flatten_all(v));
  const double length = norm(line.direction());
  if (length == 0) return unflatten(line.direction(), leaves);
  const double h = step * std::max(1.0, norm(line.origin())) / length;
  Flat difference = line.at(h).gradient;
  add(difference, -1, line.at(-h).gradient);
  scale(difference, 1 / (2 * h));
  return unflatten(difference, leaves);
}

std::vector<AlongGradient> along_gradient(const LossFunction& loss, std::span<const Tensor> leaves,
                                          std::span<const double> rates) {
  STEADY_CHECK(Error, !leaves.empty(), "along_gradient: needs at least one leaf");
  for (const double rate : rates) {
    STEADY_CHECK(Error, rate > 0 && std::isfinite(rate),
                 "along_gradient: rates must be positive; got {}", rate);
  }
  Line line(loss, leaves, {});
  const Flat gradient = line.at(0).gradient;
  const double length = norm(gradient);
  STEADY_CHECK(Error, length > 0, "along_gradient: the gradient is zero");
  line.turn(gradient);
  std::vector<AlongGradient> result;
  for (const double rate : rates) {
    Line::Point there = line.at(-rate);
    add(there.gradient, -1, gradient);
    const double change = norm(there.gradient) / length;
    result.push_back({rate, there.loss, change, change / rate});
  }
  return result;
}

Eigenvalue top_eigenvalue(const LeafOperator& apply, std::span<const Tensor> like,
                          const EigenvalueOptions& options) {
  STEADY_CHECK(Error, !like.empty(), "top_eigenvalue: needs at least one leaf");
  STEADY_CHECK(Error, options.iterations > 0 && options.tolerance > 0,
               "top_eigenvalue: iterations and tolerance must be positive; got {} and {}",
               options.iterations, options.tolerance);
  std::size_t size = 0;
  for (const Tensor& t : like) size += static_cast<std::size_t>(t.numel());
  STEADY_CHECK(ShapeError, size > 0, "top_eigenvalue: the leaves have no elements");
  std::vector<Flat> basis{start_vector(size, options.seed)};
  Tridiagonal t;
  Eigenvalue result;
  const int most = static_cast<int>(std::min(size, static_cast<std::size_t>(options.iterations)));
  while (result.iterations < most) {
    Flat w = flatten_all(apply(unflatten(basis.back(), like)));
    const double alpha = dot(w, basis.back());
    STEADY_CHECK(NonFiniteError, std::isfinite(alpha), "top_eigenvalue: product {} is not finite",
                 result.iterations + 1);
    ++result.iterations;
    t.a.push_back(alpha);
    const double beta = orthogonalize(w, basis);
    result.value = t.largest();
    result.residual = beta * t.last_component(result.value);
    result.converged = result.residual <= options.tolerance * std::abs(result.value);
    if (result.converged || result.iterations == most || beta == 0) break;
    t.b.push_back(beta);
    scale(w, 1 / beta);
    basis.push_back(std::move(w));
  }
  return result;
}

Eigenvalue top_eigenvalue(const LossFunction& loss, std::span<const Tensor> leaves,
                          const EigenvalueOptions& options) {
  return top_eigenvalue(
      [&](std::span<const Tensor> v) { return hessian_vector_product(loss, leaves, v); }, leaves,
      options);
}

}  // namespace steady
