#include <omp.h>

#include <dnnl.hpp>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/kernels/onednn.hpp>

namespace steady::kernels {
namespace {

/// oneDNN cuts work by omp_get_max_threads(), both when a primitive is made and when it runs. This
/// keeps it at one for the calling thread.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() { omp_set_num_threads(before_); }

 private:
  int before_;
};

}  // namespace

void onednn_sgemm(const GemmShape& s, float alpha, const float* a, const float* b, float beta,
                  float* c) {
  const OneThread guard;
  const dnnl_status_t status = dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m,
                                          s.n, s.k, alpha, a, s.lda, b, s.ldb, beta, c, s.ldc);
  STEADY_CHECK(Error, status == dnnl_success,
               "gemm: oneDNN sgemm failed with status {}; got m {}, n {}, k {}",
               static_cast<int>(status), s.m, s.n, s.k);
}

bool onednn_prefers_sgemm(const GemmShape& s) { return !s.transpose_a; }

}  // namespace steady::kernels
