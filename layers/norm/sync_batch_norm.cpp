#include <steadygrad/layers/norm/sync_batch_norm.hpp>

#include <array>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/tape.hpp>
#include <steadygrad/layers/norm/batch_norm_kernel.hpp>
#include <steadygrad/layers/norm/norm_op.hpp>

// One channel, M elements on all ranks, rank r with N_r samples, N = sum N_r. The joined loss is
// J = sum_r (N_r / N) L_r, so with u_r = dL_r/dy the derivative of batch_norm_kernel.cpp wants
//   s1 = sum_r (N_r / N) sum u_r,    s2 = sum_r (N_r / N) sum u_r * (x - mean),
// and dJ/dx on rank r. The optimizer sees (N_r / N) times what rank r computes: it has to compute
// dJ/dx * N / N_r, which is the same formula with s1 and s2 over N_r instead of N:
//   s1 = (1 / N_r) sum_q N_q sum u_q.
// dweight = rstd * (local s2) and dbias = local s1 get their factor N_r / N from the averaging.

namespace steady {
namespace {

using detail::elements;
using detail::empty_if;
using detail::writable;

struct SyncCut {
  ColumnShape columns;       // of this rank
  double count = 0;          // rows of all ranks
  std::int64_t samples = 0;  // of this rank
  distributed::Communicator* communicator = nullptr;
};

/// Replaces s1 and s2 ([2, C]) of this rank by those of the joined batch, as seen from this rank.
void join_sums(const SyncCut& cut, std::span<double> sums) {
  const auto samples = static_cast<double>(cut.samples);
  for (double& s : sums) s *= samples;
  const std::vector<double> all = cut.communicator->all_gather(std::span<const double>(sums));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    double sum = 0;
    for (std::size_t at = i; at < all.size(); at += sums.size()) sum += all[at];
    sums[i] = cut.samples > 0 ? sum / samples : 0;
  }
}

/// Gradients of (x, weight, bias), those that are needed.
std::array<Tensor, 3> sync_backward(const SyncCut& cut, const BackwardCall& call) {
  const char* op = "sync_batch_norm_backward";
  const Tensor &dy = call.grad(), &x = call.saved(0), &weight = call.saved(1),
               &stats = call.saved(2);
  const auto channels = static_cast<std::size_t>(cut.columns.channels);
  Tensor dx = empty_if(call.needs(0), x.shape(), x.dtype());
  Tensor dweight = empty_if(call.needs(1), {cut.columns.channels}, x.dtype());
  Tensor dbias = empty_if(call.needs(2), {cut.columns.channels}, x.dtype());
  std::vector<double> sums(2 * channels, 0.0);
  const std::span<double> s1 = std::span(sums).first(channels), s2 = std::span(sums).last(channels);
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    const std::span<const T> rstd = elements<T>(stats).last(channels);
    if (cut.columns.rows > 0) {
      Tensor scratch = Tensor::empty({column_workspace(cut.columns)}, Dtype::F64);
      column_sums<T>(cut.columns, elements<T>(x), elements<T>(dy), elements<T>(stats), s1, s2,
                     writable<double>(scratch, op));
    }
    const std::span<T> by_weight = writable<T>(dweight, op), by_bias = writable<T>(dbias, op);
    for (std::size_t c = 0; c < by_weight.size(); ++c) {
      by_weight[c] = static_cast<T>(s2[c] * static_cast<double>(rstd[c]));
    }
    for (std::size_t c = 0; c < by_bias.size(); ++c) by_bias[c] = static_cast<T>(s1[c]);
    if (!dx.defined()) return;
    join_sums(cut, sums);
    if (cut.columns.rows == 0) return;
    batch_norm_backward_input<T>(cut.columns, cut.count, elements<T>(x), elements<T>(dy),
                                 elements<T>(weight), elements<T>(stats), s1, s2,
                                 writable<T>(dx, op));
  });
  return record(op, std::array{dx, dweight, dbias}, {dy, x, weight}, {}, NoBackward{});
}

/// The moments of this rank become those of the joined batch.
void join_moments(distributed::Communicator& communicator, std::vector<Moments>& moments) {
  const std::vector<std::int64_t> channels =
      communicator.all_gather(static_cast<std::int64_t>(moments.size()));
  for (std::size_t r = 0; r < channels.size(); ++r) {
    STEADY_CHECK(Error, channels[r] == channels[0],
                 "sync_batch_norm: rank {} normalizes {} channels and rank 0 {}: the ranks do not "
                 "run the same layer",
                 r, channels[r], channels[0]);
  }
  const std::vector<Moments> all = communicator.all_gather(std::span<const Moments>(moments));
  std::ranges::fill(moments, Moments{});
  for (std::size_t at = 0; at < all.size(); at += moments.size()) {
    merge_moments(std::span(all).subspan(at, moments.size()), moments);
  }
}

}  // namespace

BatchNormResult sync_batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                double eps, distributed::Communicator& communicator) {
  if (communicator.size() == 1) return batch_norm(x, weight, bias, eps);
  const char* op = "sync_batch_norm";
  detail::check_norm_input(op, x);
  STEADY_CHECK(ShapeError, x.rank() >= 2 && x.dim(-1) >= 1,
               "{}: needs [N, ..., C] of two axes or more, C >= 1; got x {}", op, describe(x));
  detail::check_norm_parameter(op, "weight", weight, {x.dim(-1)}, x);
  detail::check_norm_parameter(op, "bias", bias, {x.dim(-1)}, x);
  detail::check_eps(op, eps);
  SyncCut cut{.columns = {.rows = x.shape().numel(0, x.rank() - 1), .channels = x.dim(-1)},
              .samples = x.dim(0),
              .communicator = &communicator};
  BatchNormResult result{Tensor::empty(x.shape(), x.dtype()), {}};
  result.moments.resize(static_cast<std::size_t>(cut.columns.channels));
  Tensor stats = Tensor::zeros({3, cut.columns.channels}, x.dtype());
  dispatch_float(op, x.dtype(), [&]<FloatElement T>() {
    if (cut.columns.rows > 0) {
      Tensor scratch = Tensor::empty({column_workspace(cut.columns)}, Dtype::F64);
      column_moments<T>(cut.columns, elements<T>(x), result.moments, writable<double>(scratch, op));
    }
    join_moments(communicator, result.moments);
    cut.count = result.moments.front().n;
    STEADY_CHECK(ShapeError, cut.count != 1,
                 "{}: batch statistics need more than one value per channel on all ranks together; "
                 "got x {}",
                 op, describe(x));
    if (cut.count == 0) return;
    batch_norm_stats<T>(result.moments, eps, writable<T>(stats, op));
    if (cut.columns.rows == 0) return;
    batch_norm_apply<T>(cut.columns, elements<T>(x), elements<T>(weight), elements<T>(bias),
                        elements<T>(stats), writable<T>(result.y, op));
  });
  result.y = record(op, std::move(result.y), {x, weight, bias}, {x, weight, stats},
                    [cut](BackwardCall& call) {
                      auto [dx, dweight, dbias] = sync_backward(cut, call);
                      call.give(0, std::move(dx));
                      call.give(1, std::move(dweight));
                      call.give(2, std::move(dbias));
                    });
  return result;
}

std::vector<std::string> convert_to_sync_batch_norm(Module& model) {
  std::vector<std::string> paths;
  model.visit([&](Module& module) {
    auto* norm = dynamic_cast<BatchNorm*>(&module);
    if (norm == nullptr) return;
    norm->synchronize();
    paths.push_back(norm->path());
  });
  return paths;
}

}  // namespace steady
