// How to write an operation with a backward of your own, and have both derivatives checked.
//
//   build/bin/own_op
//
// Squared ReLU [So et al. 2021], y = max(x, 0)^2. The forward is a loop over spans, cut into pieces
// that do not depend on the number of threads. The backward is made of operations, so that it can
// be differentiated again. Expected: the right one passes both checks, the wrong one is refused;
// exit code 0.
#include <algorithm>
#include <cstdio>
#include <steadygrad/steadygrad.hpp>

using namespace steady;

Tensor forward_values(const Tensor& x) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  dispatch_float("squared_relu", x.dtype(), [&]<FloatElement T>() {
    const auto in = x.data<T>();
    const auto out = y.mutable_data<T>("squared_relu");
    parallel_for(x.numel(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        const T positive = std::max(in[i], T(0));
        out[i] = positive * positive;
      }
    });
  });
  return y;
}

/// y = max(x, 0)^2, elementwise; f32 or f64.
Tensor squared_relu(const Tensor& x) {
  return record("squared_relu", forward_values(x), /*inputs=*/{x}, /*saved=*/{x},
                [](BackwardCall& call) {
                  call.give(0, [&] { return call.grad() * relu(call.saved(0)) * 2.0; });
                });
}

/// The same with the factor 2 forgotten.
Tensor wrong_squared_relu(const Tensor& x) {
  return record("wrong_squared_relu", forward_values(x), {x}, {x}, [](BackwardCall& call) {
    call.give(0, [&] { return call.grad() * relu(call.saved(0)); });
  });
}

int main() {
  Tensor x = Tensor::empty({3, 4}, Dtype::F64).set_requires_grad();
  Random random(1, "x");
  for (double& v : x.mutable_data<double>()) v = random.normal();

  const TensorFunction right = [](std::span<const Tensor> in) { return squared_relu(in[0]); };
  const TensorFunction wrong = [](std::span<const Tensor> in) { return wrong_squared_relu(in[0]); };
  const GradcheckResult first = gradcheck(right, {x});
  const GradcheckResult second = gradcheck_second(right, {x});
  const GradcheckResult refused = gradcheck(wrong, {x});
  std::printf("squared_relu: first derivative %s (error %.1e), second %s (error %.1e)\n",
              first.ok ? "ok" : "WRONG", first.error, second.ok ? "ok" : "WRONG", second.error);
  std::printf("wrong_squared_relu: %s\n", refused.ok ? "passes" : refused.message.c_str());
  return first.ok && second.ok && !refused.ok ? 0 : 1;
}
