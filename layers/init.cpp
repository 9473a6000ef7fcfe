#include <steadygrad/layers/init.hpp>

#include <cmath>
#include <steadygrad/core/error.hpp>

namespace steady {
namespace {

template <class Draw>
void fill(Tensor& value, Draw&& draw) {
  dispatch_float("initialize", value.dtype(), [&]<FloatElement T>() {
    for (T& element : value.mutable_data<T>("initialize")) element = static_cast<T>(draw());
  });
}

}  // namespace

Fans fans_of(const Shape& shape) {
  STEADY_CHECK(ShapeError, shape.rank() >= 2,
               "initialize: fans need a weight of rank 2 or more; got {}", to_string(shape));
  const auto rest = static_cast<double>(shape.numel(2, shape.rank()));
  return {.in = static_cast<double>(shape[1]) * rest, .out = static_cast<double>(shape[0]) * rest};
}

Init constant_init(double constant) {
  return [=](Tensor& value, Random&) { fill(value, [=] { return constant; }); };
}

Init uniform_init(double low, double high) {
  STEADY_CHECK(Error, low <= high, "uniform_init: needs low <= high; got {} and {}", low, high);
  return [=](Tensor& value, Random& random) {
    fill(value, [&] { return random.uniform(low, high); });
  };
}

Init normal_init(double mean, double stddev) {
  STEADY_CHECK(Error, std::isfinite(mean) && std::isfinite(stddev) && stddev >= 0.0,
               "normal_init: needs a finite mean and stddev >= 0; got {} and {}", mean, stddev);
  return [=](Tensor& value, Random& random) {
    fill(value, [&] { return mean + stddev * random.normal(); });
  };
}

Init truncated_normal_init(double mean, double stddev, double low, double high) {
  const auto below = [&](double x) {
    return std::erfc((mean - x) / (stddev * std::sqrt(2.0))) / 2;
  };
  STEADY_CHECK(Error, stddev > 0.0 && below(high) - below(low) >= 1e-3,
               "truncated_normal_init: needs stddev > 0 and bounds that hold at least 0.001 of the "
               "distribution; got mean {}, stddev {}, low {}, high {}",
               mean, stddev, low, high);
  return [=](Tensor& value, Random& random) {
    fill(value, [&] {
      double x = 0.0;
      do {
        x = mean + stddev * random.normal();
      } while (x < low || x > high);
      return x;
    });
  };
}

Init kaiming_uniform_init(double gain) {
  return [=](Tensor& value, Random& random) {
    const double bound = std::sqrt(3.0) * gain / std::sqrt(fans_of(value.shape()).in);
    uniform_init(-bound, bound)(value, random);
  };
}

Init kaiming_normal_init(double gain) {
  return [=](Tensor& value, Random& random) {
    normal_init(0.0, gain / std::sqrt(fans_of(value.shape()).in))(value, random);
  };
}

Init xavier_uniform_init(double gain) {
  return [=](Tensor& value, Random& random) {
    const Fans fans = fans_of(value.shape());
    const double bound = gain * std::sqrt(6.0 / (fans.in + fans.out));
    uniform_init(-bound, bound)(value, random);
  };
}

Init xavier_normal_init(double gain) {
  return [=](Tensor& value, Random& random) {
    const Fans fans = fans_of(value.shape());
    normal_init(0.0, gain * std::sqrt(2.0 / (fans.in + fans.out)))(value, random);
  };
}

}  // namespace steady
