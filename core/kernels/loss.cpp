#include <algorithm>
#include <cmath>
#include <numeric>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/loss.hpp>
#include <steadygrad/core/kernels/reduce_forms.hpp>
#include <steadygrad/core/kernels/softmax_rows.hpp>
#include <steadygrad/core/parallel.hpp>
#include <vector>

namespace steady::kernels {
namespace {

template <class T>
double class_weight(const CrossEntropy<T>& o, std::int64_t c) {
  return o.class_weight.empty() ? 1.0
                                : static_cast<double>(o.class_weight[static_cast<std::size_t>(c)]);
}

template <class T>
double total_class_weight(const CrossEntropy<T>& o) {
  if (o.class_weight.empty()) return static_cast<double>(o.classes);
  return std::accumulate(o.class_weight.begin(), o.class_weight.end(), 0.0);
}

/// Coefficients of one used row: dlogits = dloss (p A - B), see loss.hpp.
struct RowTerms {
  double hard;    ///< (1 - s) w[t]
  double smooth;  ///< s / C
  double a;       ///< A
};

template <class T>
RowTerms row_terms(const CrossEntropy<T>& o, std::int64_t target, double weight_sum) {
  const double hard = (1 - o.label_smoothing) * class_weight(o, target);
  const double smooth = o.label_smoothing / static_cast<double>(o.classes);
  return {hard, smooth, hard + smooth * weight_sum};
}

/// A term of weight 0 counts nothing, also where lse - x is infinite.
double weighted(double weight, double value) { return weight == 0 ? 0.0 : weight * value; }

template <class T>
double row_loss(const CrossEntropy<T>& o, const T* x, std::int64_t target, double lse) {
  const double hard = (1 - o.label_smoothing) * class_weight(o, target);
  double loss = weighted(hard, lse - static_cast<double>(x[target]));
  if (o.label_smoothing == 0) return loss;
  double smooth = 0;
  for (std::int64_t c = 0; c < o.classes; ++c)
    smooth += weighted(class_weight(o, c), lse - static_cast<double>(x[c]));
  return loss + o.label_smoothing / static_cast<double>(o.classes) * smooth;
}

template <class T>
void check_sizes(const char* op, const CrossEntropy<T>& o, std::size_t logits, std::size_t target,
                 std::size_t lse, std::size_t dloss) {
  const auto rows = static_cast<std::size_t>(o.rows);
  STEADY_CHECK(
      Error,
      logits == rows * static_cast<std::size_t>(o.classes) && target == rows && lse == rows &&
          (dloss == rows || dloss == 1),
      "{}: buffers must fit {} rows of {} classes; got {} logits, {} targets, {} lse, {} dloss", op,
      o.rows, o.classes, logits, target, lse, dloss);
}

}  // namespace

template <class T>
void check_cross_entropy(const CrossEntropy<T>& o, std::span<const std::int64_t> target) {
  STEADY_CHECK(Error, o.label_smoothing >= 0 && o.label_smoothing <= 1,
               "cross_entropy: label_smoothing must be in [0, 1]; got {}", o.label_smoothing);
  STEADY_CHECK(Error, std::ssize(target) == o.rows && o.classes >= 0,
               "cross_entropy: one target per row; got {} targets, {} rows", target.size(), o.rows);
  STEADY_CHECK(Error, o.class_weight.empty() || std::ssize(o.class_weight) == o.classes,
               "cross_entropy: one weight per class; got {} weights, {} classes",
               o.class_weight.size(), o.classes);
  for (std::int64_t r = 0; r < o.rows; ++r) {
    const std::int64_t t = target[static_cast<std::size_t>(r)];
    STEADY_CHECK(Error, t == o.ignore_index || (t >= 0 && t < o.classes),
                 "cross_entropy: a target must be a class or ignore_index {}; got target[{}] = {} "
                 "with {} classes",
                 o.ignore_index, r, t, o.classes);
  }
}

template <class T>
CrossEntropySums cross_entropy_forward(const CrossEntropy<T>& o, std::span<const T> logits,
                                       std::span<const std::int64_t> target, std::span<T> loss,
                                       std::span<double> lse) {
  check_cross_entropy(o, target);
  check_sizes("cross_entropy", o, logits.size(), target.size(), lse.size(),
              loss.empty() ? 1 : loss.size());
  const std::int64_t rows = rows_per_chunk(o.classes);
  CrossEntropySums sums;
  sums.loss = parallel_sum(o.rows, rows, [&](std::int64_t begin, std::int64_t end) {
    double total = 0;
    if (o.classes > 0)
      log_sum_exp_rows(logits.data() + begin * o.classes, end - begin, o.classes,
                       lse.data() + begin);
    for (std::int64_t r = begin; r < end; ++r) {
      const auto at = static_cast<std::size_t>(r);
      double value = 0;
      if (target[at] == o.ignore_index)
        lse[at] = 0;
      else
        value = row_loss(o, logits.data() + r * o.classes, target[at], lse[at]);
      if (!loss.empty()) loss[at] = static_cast<T>(value);
      total += value;
    }
    return total;
  });
  for (const std::int64_t t : target) {
    if (t == o.ignore_index) continue;
    ++sums.used;
    sums.weight += class_weight(o, t);
  }
  return sums;
}

template <class T>
void cross_entropy_backward(const CrossEntropy<T>& o, std::span<const T> dloss,
                            std::span<const T> logits, std::span<const std::int64_t> target,
                            std::span<const double> lse, std::span<T> dlogits) {
  check_cross_entropy(o, target);
  check_sizes("cross_entropy_backward", o, logits.size(), target.size(), lse.size(), dloss.size());
  STEADY_CHECK(Error, dlogits.size() == logits.size(),
               "cross_entropy_backward: dlogits must have the size of logits; got {} and {}",
               dlogits.size(), logits.size());
  const double weight_sum = total_class_weight(o);
  parallel_for(o.rows, rows_per_chunk(o.classes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const auto at = static_cast<std::size_t>(r);
      T* dx = dlogits.data() + r * o.classes;
      if (target[at] == o.ignore_index) {
        std::fill_n(dx, o.classes, T{0});
        continue;
      }
      const RowTerms terms = row_terms(o, target[at], weight_sum);
      const auto g = static_cast<double>(dloss[dloss.size() == 1 ? 0 : at]);
      exp_row(logits.data() + r * o.classes, o.classes, lse[at], static_cast<T>(g * terms.a), dx);
      for (std::int64_t c = 0; c < o.classes && terms.smooth != 0; ++c)
        dx[c] -= static_cast<T>(g * terms.smooth * class_weight(o, c));
      dx[target[at]] -= static_cast<T>(g * terms.hard);
    }
  });
}

template <class T>
void cross_entropy_second(const CrossEntropy<T>& o, std::span<const T> v, std::span<const T> dloss,
                          std::span<const T> logits, std::span<const std::int64_t> target,
                          std::span<const double> lse, std::span<T> dx, std::span<T> ddloss) {
  check_cross_entropy(o, target);
  check_sizes("cross_entropy_second", o, logits.size(), target.size(), lse.size(), dloss.size());
  STEADY_CHECK(
      Error, v.size() == logits.size() && dx.size() == v.size() && std::ssize(ddloss) == o.rows,
      "cross_entropy_second: v and dx must have the size of logits, ddloss one per row; got "
      "{}, {}, {} of {}",
      v.size(), dx.size(), ddloss.size(), logits.size());
  const double weight_sum = total_class_weight(o);
  parallel_for(o.rows, rows_per_chunk(o.classes), [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> p(static_cast<std::size_t>(o.classes));
    for (std::int64_t r = begin; r < end; ++r) {
      const auto at = static_cast<std::size_t>(r);
      T* out = dx.data() + r * o.classes;
      ddloss[at] = 0;
      if (target[at] == o.ignore_index) {
        std::fill_n(out, o.classes, T{0});
        continue;
      }
      const RowTerms terms = row_terms(o, target[at], weight_sum);
      const T* direction = v.data() + r * o.classes;
      exp_row(logits.data() + r * o.classes, o.classes, lse[at], T{1}, p.data());
      double mean = 0;
      for (std::int64_t c = 0; c < o.classes; ++c)
        mean +=
            static_cast<double>(direction[c]) * static_cast<double>(p[static_cast<std::size_t>(c)]);
      double linear = terms.hard * static_cast<double>(direction[target[at]]);
      for (std::int64_t c = 0; c < o.classes && terms.smooth != 0; ++c)
        linear += terms.smooth * class_weight(o, c) * static_cast<double>(direction[c]);
      ddloss[at] = static_cast<T>(terms.a * mean - linear);
      const auto g = static_cast<double>(dloss[dloss.size() == 1 ? 0 : at]);
      for (std::int64_t c = 0; c < o.classes; ++c)
        out[c] = static_cast<T>(g * terms.a * static_cast<double>(p[static_cast<std::size_t>(c)]) *
                                (static_cast<double>(direction[c]) - mean));
    }
  });
}

template void check_cross_entropy(const CrossEntropy<float>&, std::span<const std::int64_t>);
template CrossEntropySums cross_entropy_forward(const CrossEntropy<float>&, std::span<const float>,
                                                std::span<const std::int64_t>, std::span<float>,
                                                std::span<double>);
template void cross_entropy_backward(const CrossEntropy<float>&, std::span<const float>,
                                     std::span<const float>, std::span<const std::int64_t>,
                                     std::span<const double>, std::span<float>);
template void cross_entropy_second(const CrossEntropy<float>&, std::span<const float>,
                                   std::span<const float>, std::span<const float>,
                                   std::span<const std::int64_t>, std::span<const double>,
                                   std::span<float>, std::span<float>);
template void check_cross_entropy(const CrossEntropy<double>&, std::span<const std::int64_t>);
template CrossEntropySums cross_entropy_forward(const CrossEntropy<double>&,
                                                std::span<const double>,
                                                std::span<const std::int64_t>, std::span<double>,
                                                std::span<double>);
template void cross_entropy_backward(const CrossEntropy<double>&, std::span<const double>,
                                     std::span<const double>, std::span<const std::int64_t>,
                                     std::span<const double>, std::span<double>);
template void cross_entropy_second(const CrossEntropy<double>&, std::span<const double>,
                                   std::span<const double>, std::span<const double>,
                                   std::span<const std::int64_t>, std::span<const double>,
                                   std::span<double>, std::span<double>);

}  // namespace steady::kernels
