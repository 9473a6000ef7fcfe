// What does computing a norm in bf16 or fp16 cost, and what does the order of its cast?
//
//   build/bin/norm_precision
//
// Each norm is computed as low-precision code would (simulate=..., see NormSpec) and by the float32
// kernels, on rows of width 768 and 7168: normal numbers, mean 1e4 with spread 1, one outlier of
// 1000 in small numbers, and numbers of size 1e-6. The error is the largest one against float64 on
// the same numbers, those rounded to the format that the norm is given, relative to max(1, |y|).
// Expected: below 1e-6 for float32 everywhere; on normal numbers about 4e-3 for bf16 and 5e-4 for
// fp16 with float32 accumulators, twice that where the cast stands before the weight; where sums
// are kept in the format itself 0.1 to 1 for bf16, 5e-3 to 0.1 for fp16, and 1, a row of zeros,
// where fp16 overflows. The rows `input alone` show the exact norm of the rounded numbers against
// that of the original ones: the loss that no kernel mends.

#include <algorithm>
#include <cmath>
#include <iostream>
#include <steadygrad/core/random.hpp>
#include <steadygrad/layers/norm/norm_spec.hpp>
#include <steadygrad/layers/norm/simulated_precision.hpp>

#include "examples/common/cli.hpp"
#include "examples/common/table.hpp"

namespace {

using namespace steady;

struct Data {
  const char* name;
  double mean, spread, outlier;
};
constexpr Data Kinds[] = {{"normal", 0, 1, 0},
                          {"mean 1e4", 1e4, 1, 0},
                          {"outlier 1e3", 0, 0.1, 1e3},
                          {"size 1e-6", 0, 1e-6, 0}};

enum class Format { None, Bf16, Fp16 };

Format format_of(const std::string& spec) {
  return spec.find("bf16") != spec.npos   ? Format::Bf16
         : spec.find("fp16") != spec.npos ? Format::Fp16
                                          : Format::None;
}

/// [sets, width] numbers of float32; [width, sets] for norms of columns.
Tensor data_of(const Data& kind, std::int64_t width, bool columns) {
  constexpr std::int64_t Sets = 4;
  Random random(3, kind.name);
  Tensor x = Tensor::empty(columns ? Shape{width, Sets} : Shape{Sets, width}, Dtype::F64);
  for (double& v : x.mutable_data<double>()) {
    v = double(float(kind.mean + kind.spread * random.normal()));
  }
  for (std::int64_t i = 0; kind.outlier != 0 && i < Sets; ++i) {
    x.mutable_data<double>()[static_cast<std::size_t>(columns ? i : i * width)] = kind.outlier;
  }
  return x;
}

Tensor rounded(const Tensor& x, Format format) {
  Tensor y = x.detached_copy();
  if (format == Format::None) return y;
  const LowFormat low = format == Format::Bf16 ? LowFormat::Bf16 : LowFormat::Fp16;
  for (double& v : y.mutable_data<double>()) v = round_to(low, v);
  return y;
}

/// The norm with weights around 1, numbers of both formats, as trained ones are.
Tensor apply(const std::string& spec, const Tensor& x, Dtype dtype) {
  const auto norm = make_norm(NormSpec::parse(spec), x.dim(-1));
  norm->to(dtype);
  for (const Parameter& p : norm->parameters()) {
    Random random(4, p.name);
    Tensor value = Tensor::empty(p.value.shape(), Dtype::F64);
    for (double& v : value.mutable_data<double>()) {
      const double part = std::clamp(std::round(random.normal() * 32) / 128, -0.75, 0.75);
      v = (p.name == "weight" ? 1 : 0) + part;
    }
    Tensor handle = p.value;
    handle.copy_from(value.detached_copy(dtype));
  }
  return (*norm)(x.detached_copy(dtype)).detached_copy(Dtype::F64);
}

double error(const Tensor& got, const Tensor& want) {
  double worst = 0;
  for (std::int64_t i = 0; i < want.numel(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double w = want.data<double>()[at];
    worst = std::max(worst, std::abs(got.data<double>()[at] - w) / std::max(1.0, std::abs(w)));
  }
  return worst;
}

void print_table(std::int64_t width) {
  examples::Table table(
      {fmt::format("width {}", width), Kinds[0].name, Kinds[1].name, Kinds[2].name, Kinds[3].name});
  for (const std::string norm : {"layer", "rms", "batch"}) {
    const auto add = [&](const std::string& label, const auto& error_of) {
      std::vector<std::string> cells{label};
      for (const Data& kind : Kinds) {
        cells.push_back(fmt::format("{:.1e}", error_of(data_of(kind, width, norm == "batch"))));
      }
      table.add_row(cells);
    };
    add(norm + ", float32 kernel", [&](const Tensor& x) {
      return error(apply(norm, x, Dtype::F32), apply(norm, x, Dtype::F64));
    });
    for (const std::string format : {"bf16", "fp16"}) {
      add(fmt::format("{}, {} input alone", norm, format), [&](const Tensor& x) {
        return error(apply(norm, rounded(x, format_of(format)), Dtype::F64),
                     apply(norm, x, Dtype::F64));
      });
      for (const std::string options : {"cast=after", "cast=before", "accumulate=same"}) {
        const std::string spec = fmt::format("{}(simulate={}, {})", norm, format, options);
        add(spec, [&](const Tensor& x) {
          const Tensor given = rounded(x, format_of(spec));
          return error(apply(spec, given, Dtype::F64), apply(norm, given, Dtype::F64));
        });
      }
    }
  }
  std::cout << table << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Errors of norms computed in bf16 and fp16, by accumulator and order of the cast."};
  return examples::run_program(app, argc, argv, [&] {
    for (const std::int64_t width : {768, 7168}) print_table(width);
    std::cout << "With float32 accumulators a norm costs the rounding of its output, and once more "
                 "where the cast comes before the weight; accumulators of the format lose the "
                 "statistics; where mean and spread are far apart the rounded input has lost them "
                 "already.\n";
    return 0;
  });
}
