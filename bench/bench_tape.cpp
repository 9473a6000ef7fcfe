// What does the tape itself cost, when the tensors are tiny?
//
//   build/bin/bench_tape [--rounds 15] [--json FILE]
//
// A chain of 1000 elementwise operations on 4 elements, forward and backward, per operation; and a
// training step of an MLP 16-32-16 on 8 rows with SGD and with AdamW. One thread. Allocations are
// calls of malloc, calloc, realloc and their aligned forms, counted in this process during the
// timed calls. Built with -DSTEADY_BENCH_PEERS=ON, libtorch takes each round in turn with ours; the
// last column is the median of the ratios of neighbouring rounds.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <steadygrad/steadygrad.hpp>
#include <string>
#include <vector>

#include "bench/timing.hpp"
#include "bench/trainer.hpp"

namespace {

std::atomic<std::int64_t> allocations = 0;

}  // namespace

// The process's allocator, counted: definitions in a program come before those of the C library.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* block, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, size);
}
void* realloc(void* block, std::size_t size) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(block, size);
}
void* memalign(std::size_t alignment, std::size_t size) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return memalign(alignment, size);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t size) noexcept {
  *block = memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}
}

namespace {

using namespace steady;
using namespace steady::bench;

/// The chain of Trainer's torch_chain.
std::function<void()> chain(int n) {
  const Tensor x = Tensor::ones({4}).set_requires_grad();
  const Tensor c = Tensor::full({4}, 1.0001);
  return [=] {
    Tape tape;
    Tensor y = x;
    for (int i = 0; i < n; i += 2) y = y * c + c;
    (void)tape.backward(sum(y));
  };
}

struct Mlp : Layer {
  Linear& up = add<Linear>("up", {.in = 16, .out = 32});
  Linear& down = add<Linear>("down", {.in = 32, .out = 16});
  Tensor forward(const Tensor& x) override { return down(tanh(up(x))); }
};

class MlpTrainer : public Trainer {
 public:
  explicit MlpTrainer(bool adamw) {
    Random random(1, "bench_tape");
    for (Tensor* t : {&x_, &y_}) {
      for (float& v : t->mutable_data<float>()) v = static_cast<float>(random.normal());
    }
    model_.initialize(1);
    if (adamw) {
      optimizer_ = std::make_unique<AdamW>(model_.parameters(), AdamWOptions{.lr = 1e-3});
    } else {
      optimizer_ =
          std::make_unique<Sgd>(model_.parameters(), SgdOptions{.lr = 0.01, .momentum = 0.9});
    }
  }
  double step() override {
    Tape tape;
    const Tensor loss = mse(model_(x_), y_);
    optimizer_->step(tape.backward(loss));
    return loss.item();
  }

 private:
  Mlp model_;
  std::unique_ptr<Optimizer> optimizer_;
  Tensor x_ = Tensor::zeros({8, 16});
  Tensor y_ = Tensor::zeros({8, 16});
};

struct Item {
  std::string name;
  int calls;   // per round
  double per;  // operations per call
  std::function<void()> ours;
  std::function<void()> peer;
};

std::function<void()> stepping(std::shared_ptr<Trainer> trainer) {
  return [trainer = std::move(trainer)] { (void)trainer->step(); };
}

std::vector<Item> items() {
  constexpr int Ops = 1000;
  std::vector<Item> result{
      {"elementwise op on 4 elements", 20, Ops, chain(Ops), {}},
      {"MLP 16-32-16 step, SGD", 200, 1, stepping(std::make_shared<MlpTrainer>(false)), {}},
      {"MLP 16-32-16 step, AdamW", 200, 1, stepping(std::make_shared<MlpTrainer>(true)), {}}};
#ifdef STEADY_BENCH_PEERS
  result[0].peer = torch_chain(Ops);
  result[1].peer = stepping(make_torch_mlp(false));
  result[2].peer = stepping(make_torch_mlp(true));
#endif
  return result;
}

struct Timing {
  std::vector<double> us;
  double allocations = 0;  // per operation, of the last round
};

void time_round(const Item& item, const std::function<void()>& call, Timing& timing) {
  const std::int64_t before = allocations.load();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < item.calls; ++i) call();
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
  const double count = item.calls * item.per;
  timing.us.push_back(spent.count() / count);
  timing.allocations = static_cast<double>(allocations.load() - before) / count;
}

nlohmann::json hold(const Item& item, int rounds) {
  Timing ours, peer;
  for (const auto* call : {&item.ours, &item.peer}) {
    for (int i = 0; *call && i < 3; ++i) (*call)();
  }
  std::vector<double> ratios;
  for (int i = 0; i < rounds; ++i) {
    time_round(item, item.ours, ours);
    if (!item.peer) continue;
    time_round(item, item.peer, peer);
    ratios.push_back(ours.us.back() / peer.us.back());
  }
  nlohmann::json row{
      {"item", item.name}, {"ours_us", median(ours.us)}, {"ours_allocations", ours.allocations}};
  std::printf("%-30s %10.3f %12.2f", item.name.c_str(), median(ours.us), ours.allocations);
  if (item.peer) {
    row["libtorch_us"] = median(peer.us);
    row["libtorch_allocations"] = peer.allocations;
    row["ours_to_libtorch"] = median(ratios);
    std::printf(" %12.3f %12.2f %12.3f", median(peer.us), peer.allocations, median(ratios));
  }
  std::printf("\n");
  return row;
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 15;
  std::string json;
  CLI::App app{"Times the tape on tiny tensors, beside libtorch where it was built in."};
  app.add_option("--rounds", rounds, "timed rounds of each side")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--json", json, "file for the numbers");
  CLI11_PARSE(app, argc, argv);
  set_num_threads(1);
  std::printf("%-30s %10s %12s %12s %12s %12s\n", "", "ours us", "allocations", "libtorch us",
              "allocations", "ours / peer");
  nlohmann::json rows = nlohmann::json::array();
  for (const Item& item : items()) rows.push_back(hold(item, rounds));
  if (!json.empty()) std::ofstream(json) << rows.dump(1) << '\n';
  return 0;
}
