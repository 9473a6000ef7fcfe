#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/parallel.hpp>
#include <steadygrad/core/tensor.hpp>
#include <string>
#include <vector>

namespace steady::testing_support {

/// The text of the Error that f throws; "no exception" otherwise.
template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no exception";
}

/// Another number of threads until the end of the scope.
class ThreadCount {
 public:
  explicit ThreadCount(int n) : before_(num_threads()) { set_num_threads(n); }
  ~ThreadCount() { set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

inline Tensor leaf(const Shape& shape, std::initializer_list<double> values,
                   Dtype dtype = Dtype::F64) {
  return Tensor::of(shape, values, dtype).set_requires_grad();
}

inline Tensor ids(const Shape& shape, std::initializer_list<double> values) {
  return Tensor::of(shape, values, Dtype::I64);
}

/// The elements as doubles.
inline std::vector<double> numbers(const Tensor& x) {
  const Tensor wide = x.detached_copy(Dtype::F64);
  const auto data = wide.data<double>();
  return {data.begin(), data.end()};
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return dispatch_all(a.dtype(), [&]<class T>() {
    return a.dtype() == b.dtype() && a.shape() == b.shape() &&
           std::memcmp(a.data<T>().data(), b.data<T>().data(), a.data<T>().size_bytes()) == 0;
  });
}

}  // namespace steady::testing_support
