#include <steadygrad/core/distributed/communicator.hpp>

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>

namespace steady::distributed {
namespace {

class Done final : public Pending {
 public:
  bool poll() override { return true; }
  void wait() override {}
};

template <class T>
std::unique_ptr<Pending> sum_alone(std::span<T> values, std::span<const double> weights) {
  detail::check_weights(weights, 1);
  const std::span<const T> mine = values;
  if (weights[0] != 1) detail::weighted_sum<T>({&mine, 1}, weights, values);
  return std::make_unique<Done>();
}

template <class T>
void all_reduce_values(Communicator& communicator, std::span<T> values) {
  const std::vector<double> ones(static_cast<std::size_t>(communicator.size()), 1.0);
  communicator.start_sum(values, ones)->wait();
}

}  // namespace

namespace detail {

template <class T>
void weighted_sum(std::span<const std::span<const T>> parts, std::span<const double> weights,
                  std::span<T> out) {
  constexpr std::int64_t Chunk = 16384;
  parallel_for(std::ssize(out), Chunk, [&](std::int64_t begin, std::int64_t end) {
    constexpr std::int64_t Block = 512;
    double sum[Block];
    for (std::int64_t at = begin; at < end; at += Block) {
      const std::int64_t n = std::min(Block, end - at);
      std::fill_n(sum, n, 0.0);
      for (std::size_t r = 0; r < parts.size(); ++r) {
        if (weights[r] == 0) continue;
        const T* x = parts[r].data() + at;
        for (std::int64_t i = 0; i < n; ++i) sum[i] += weights[r] * static_cast<double>(x[i]);
      }
      for (std::int64_t i = 0; i < n; ++i) {
        out[static_cast<std::size_t>(at + i)] = static_cast<T>(sum[i]);
      }
    }
  });
}

template void weighted_sum(std::span<const std::span<const float>>, std::span<const double>,
                           std::span<float>);
template void weighted_sum(std::span<const std::span<const double>>, std::span<const double>,
                           std::span<double>);

void check_weights(std::span<const double> weights, int size) {
  STEADY_CHECK(ShapeError, std::ssize(weights) == size,
               "communicator: needs one weight per rank; got {} weights for {} ranks",
               weights.size(), size);
}

}  // namespace detail

std::vector<std::string> Communicator::all_gather(std::string_view mine) {
  const std::vector<std::uint64_t> lengths = all_gather(std::uint64_t{mine.size()});
  const std::size_t longest = *std::ranges::max_element(lengths);
  std::string padded(mine);
  padded.resize(longest);
  const std::vector<char> all = all_gather(std::span<const char>(padded));
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    texts.emplace_back(all.data() + r * longest, lengths[r]);
  }
  return texts;
}

std::string Communicator::broadcast(std::string_view text, int root) {
  std::uint64_t length = text.size();
  broadcast(std::span(&length, 1), root);
  std::string result(text);
  result.resize(length);
  broadcast(std::span(result.data(), result.size()), root);
  return result;
}

void Communicator::all_reduce(std::span<float> values) { all_reduce_values(*this, values); }
void Communicator::all_reduce(std::span<double> values) { all_reduce_values(*this, values); }

void SingleProcess::gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) {
  STEADY_CHECK(ShapeError, mine.size() == all.size(),
               "communicator: gathers {} bytes of each rank into {}", mine.size(), all.size());
  std::ranges::copy(mine, all.begin());
}

void SingleProcess::broadcast_bytes(std::span<std::byte> /*bytes*/, int root) {
  STEADY_CHECK(Error, root == 0, "communicator: there is no rank {} to broadcast from", root);
}

std::unique_ptr<Pending> SingleProcess::start_sum(std::span<float> values,
                                                  std::span<const double> weights) {
  return sum_alone(values, weights);
}
std::unique_ptr<Pending> SingleProcess::start_sum(std::span<double> values,
                                                  std::span<const double> weights) {
  return sum_alone(values, weights);
}

}  // namespace steady::distributed
