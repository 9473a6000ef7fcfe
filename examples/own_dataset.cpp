// How to train on data of your own: here rows `x1,x2,...,class` of a CSV file, classes 0, 1, ...
//   build/bin/own_dataset FILE.csv
//   build/bin/own_dataset              makes two interleaved spirals instead of reading a file
// A data set is two tensors whose first axes agree: x [N, ...] and y [N]; order, batches and the
// rest follow. Expected without a file: nine in ten of the rows held back are right; exit code 0.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <steadygrad/steadygrad.hpp>

using namespace steady;

Dataset read_csv(std::istream& file) {
  std::vector<float> x;
  std::vector<std::int64_t> y;
  for (std::string line; std::getline(file, line);) {
    std::vector<float> row;
    for (const char *at = line.data(), *end = at + line.size(); at < end; ++at) {
      const auto [next, error] = std::from_chars(at, end, row.emplace_back());
      STEADY_CHECK(IoError, error == std::errc() && (next == end || *next == ','),
                   "read_csv: line {} is not numbers between commas: '{}'", y.size() + 1, line);
      at = next;
    }
    STEADY_CHECK(IoError, row.size() > 1 && x.size() == y.size() * (row.size() - 1),
                 "read_csv: line {} has another number of columns: '{}'", y.size() + 1, line);
    x.insert(x.end(), row.begin(), row.end() - 1);
    y.push_back(static_cast<std::int64_t>(row.back()));
  }
  const auto n = std::ssize(y), features = n == 0 ? 0 : std::ssize(x) / n;
  return {Tensor::from<float>({n, features}, x), Tensor::from<std::int64_t>({n}, y)};
}

std::string spirals() {
  std::string text;
  Random random(1, "spirals");
  for (int i = 0; i < 2000; ++i) {
    const double turn = 6 * random.uniform(), radius = (i % 2 == 0 ? 0.5 : -0.5) * (1 + turn);
    text += fmt::format("{},{},{}\n", radius * std::cos(turn), radius * std::sin(turn), i % 2);
  }
  return text;
}

struct Classifier : Layer {
  explicit Classifier(std::int64_t features) : up(add<Linear>("up", {.in = features, .out = 64})) {}
  Linear& up;
  Linear& head = add<Linear>("head", {.in = 64, .out = 10});
  Tensor forward(const Tensor& x) override { return head(relu(up(x))); }
};

int main(int argc, char** argv) {
  std::ifstream file(argc > 1 ? argv[1] : "");
  std::istringstream made(spirals());
  const Dataset all = argc > 1 ? read_csv(file) : read_csv(made);
  const Batches parts = batches(all, {.size = all.size() * 4 / 5, .seed = 1});
  const Batch train = parts[0], test = parts[1];
  Classifier model(all.x.dim(1));
  model.initialize(/*seed=*/1);
  AdamW optimizer(model.parameters(), {.lr = 1e-2});
  for (int epoch = 0; epoch < 60; ++epoch) {
    for (const Batch& b : batches({train.x, train.y}, {.size = 50, .seed = 1, .epoch = epoch})) {
      Tape tape;
      optimizer.step(tape.backward(cross_entropy(model(b.x), b.y)));
    }
  }
  const std::int64_t right = count_correct(model(test.x), test.y);
  std::printf("%ld of %ld rows held back are right\n", right, test.size());
  return argc > 1 || 10 * right > 9 * test.size() ? 0 : 1;
}
