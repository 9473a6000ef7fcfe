// Does a safetensors file load as fast as its bytes can be read?
//
//   build/bin/bench_safetensors [--megabytes 500] [--rounds 9] [--threads 2]
//
// Writes a file of float32 matrices into the temporary directory and reads it in turn in three
// ways: read() of the whole file into one buffer that is there already, File::read of every tensor,
// and load_safetensors into a model that is there already. The file comes from the page cache, so
// this is about copying, not about the disk. The ratio is the median over neighbouring rounds (1:
// as fast as read()).
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <steadygrad/steadygrad.hpp>
#include <string>
#include <vector>

#include "bench/timing.hpp"

namespace {

using namespace steady;
using namespace steady::bench;

/// A stack of square linear maps of 4 MiB each.
struct Stack : Layer {
  struct Options {
    std::int64_t layers = 0;
  };
  explicit Stack(Options options) : o(options) {
    for (std::int64_t i = 0; i < o.layers; ++i) {
      add<Linear>("layer" + std::to_string(i), {.in = 1024, .out = 1024, .bias = false});
    }
  }
  Options o;
  Tensor forward(const Tensor& x) override { return x; }
};

void plain_read(const std::string& path, std::vector<char>& buffer) {
  const int file = ::open(path.c_str(), O_RDONLY);
  std::size_t done = 0;
  while (done < buffer.size()) {
    const ssize_t got = ::read(file, buffer.data() + done, buffer.size() - done);
    if (got <= 0) std::exit(1);
    done += static_cast<std::size_t>(got);
  }
  ::close(file);
}

void run(std::int64_t megabytes, int rounds) {
  const auto folder = std::filesystem::temp_directory_path() / "steady_bench_safetensors";
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "model.safetensors").string();
  Stack model({.layers = std::max<std::int64_t>(1, megabytes * 1'000'000 / (4 << 20))});
  model.initialize(1);
  const double writing = seconds_of([&] { save_safetensors(model, path); });
  std::vector<char> buffer(std::filesystem::file_size(path));
  const double size = static_cast<double>(buffer.size()) / 1e9;

  std::vector<double> opening;
  std::vector<double> plain;
  std::vector<double> tensors;
  std::vector<double> models;
  std::vector<double> tensors_ratio;
  std::vector<double> models_ratio;
  for (int round = 0; round < rounds; ++round) {
    plain.push_back(seconds_of([&] { plain_read(path, buffer); }));
    std::size_t listed = 0;
    opening.push_back(seconds_of([&] { listed = safetensors::File::open(path).tensors().size(); }));
    if (listed == 0) std::exit(1);
    tensors.push_back(seconds_of([&] {
      const auto file = safetensors::File::open(path);
      State state;
      for (const auto& t : file.tensors()) state.push_back({t.name, file.read(t.name)});
    }));
    models.push_back(seconds_of([&] { load_safetensors(model, path); }));
    tensors_ratio.push_back(plain.back() / tensors.back());
    models_ratio.push_back(plain.back() / models.back());
  }
  std::filesystem::remove_all(folder);
  const auto line = [&](const char* what, double seconds, double ratio) {
    std::printf("%-26s %10.2f %10.2f %10.2f\n", what, 1e3 * seconds, size / seconds, ratio);
  };
  std::printf("%.1f MB, %lld tensors, %d rounds, %d threads\n", 1e3 * size,
              static_cast<long long>(model.o.layers), rounds, num_threads());
  std::printf("%-26s %10s %10s %10s\n", "", "median ms", "GB/s", "of read()");
  line("read() into a buffer", median(plain), 1.0);
  line("every tensor", median(tensors), median(tensors_ratio));
  line("into a model", median(models), median(models_ratio));
  std::printf("%-26s %10.3f\n", "open and list", 1e3 * median(opening));
  std::printf("%-26s %10.2f %10.2f\n", "save", 1e3 * writing, size / writing);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Compares loading safetensors files with a plain read.");
  std::int64_t megabytes = 500;
  int rounds = 9;
  int threads = steady::num_threads();
  app.add_option("--megabytes", megabytes, "size of the file")->check(CLI::Range(1, 100'000));
  app.add_option("--rounds", rounds, "rounds")->check(CLI::Range(1, 1000));
  app.add_option("--threads", threads, "threads of the library")->check(CLI::Range(1, 64));
  CLI11_PARSE(app, argc, argv);
  steady::set_num_threads(threads);
  run(megabytes, rounds);
  return 0;
}
