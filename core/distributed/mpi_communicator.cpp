#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <limits>
#include <steadygrad/core/distributed/world.hpp>
#include <steadygrad/core/error.hpp>
#include <thread>

#ifdef STEADY_MPI
#include <mpi.h>
#endif

// A sum is a reduce-scatter and an all-gather, written so that the order of additions is fixed:
//   1. all-to-all: rank k gets part k of every rank's values
//   2. rank k adds its part up, in rank order in float64
//   3. all-gather of the parts
// 2 (P-1)/P n elements leave each rank, as in a ring. Whatever MPI does inside its collectives
// moves data only, so the bits depend on nothing but the number of ranks. Steps 1 and 3 have a
// communicator each, on which they are started in the order of the sums: MPI wants the same order
// on all ranks, and ranks finish their step 1 at different times.

namespace steady::distributed {

#ifdef STEADY_MPI
namespace {

using Clock = std::chrono::steady_clock;

double timeout_seconds() {
  const char* text = std::getenv("STEADY_MPI_TIMEOUT");
  const double seconds = text == nullptr ? 0 : std::strtod(text, nullptr);
  return seconds > 0 ? seconds : 1800;
}

std::string rank_text(int rank, int size) { return fmt::format("rank {} of {}", rank, size); }

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  throw Error(fmt::format("communicator: {}: {}", what, text));
}

template <class T>
MPI_Datatype type_of() {
  if constexpr (std::is_same_v<T, float>) return MPI_FLOAT;
  if constexpr (std::is_same_v<T, double>) return MPI_DOUBLE;
}

int as_count(std::size_t n) {
  STEADY_CHECK(ShapeError, n <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
               "communicator: {} elements at once are more than MPI takes", n);
  return static_cast<int>(n);
}

/// The part of n values that each rank adds up.
struct Parts {
  Parts(std::size_t n, int size) {
    const auto ranks = static_cast<std::size_t>(size);
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::size_t begin = n * r / ranks;
      begins.push_back(as_count(begin));
      counts.push_back(as_count(n * (r + 1) / ranks - begin));
    }
  }
  std::vector<int> begins, counts;
};

/// A duplicate of MPI_COMM_WORLD whose errors are returned.
MPI_Comm duplicate() {
  MPI_Comm copy = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  return copy;
}

/// A sum on its way; the communicator drives all of them in order.
class Sum {
 public:
  virtual ~Sum() = default;
  virtual void start_gather(MPI_Comm comm) = 0;
  std::vector<std::byte> scratch;  // what the other ranks send
  MPI_Request request = MPI_REQUEST_NULL;
  bool gathering = false;
  bool over = false;
};

template <class T>
class SumOf final : public Sum {
 public:
  SumOf(std::span<T> values, std::span<const double> weights, int rank, MPI_Comm comm,
        std::vector<std::byte> memory)
      : values_(values),
        weights_(weights.begin(), weights.end()),
        rank_(static_cast<std::size_t>(rank)),
        parts_(values.size(), static_cast<int>(weights.size())) {
    const int mine = parts_.counts[rank_];
    const std::size_t elements = weights.size() * static_cast<std::size_t>(mine);
    as_count(elements);
    scratch = std::move(memory);
    if (scratch.size() < elements * sizeof(T)) scratch.resize(elements * sizeof(T));
    received_ = {reinterpret_cast<T*>(scratch.data()), elements};
    // The own part is used where it lies.
    std::vector<int> send_counts = parts_.counts;
    send_counts[rank_] = 0;
    for (std::size_t r = 0; r < weights.size(); ++r) {
      counts_.push_back(r == rank_ ? 0 : mine);
      begins_.push_back(static_cast<int>(r) * mine);
    }
    send_counts_ = std::move(send_counts);
    check(MPI_Ialltoallv(values_.data(), send_counts_.data(), parts_.begins.data(), type_of<T>(),
                         received_.data(), counts_.data(), begins_.data(), type_of<T>(), comm,
                         &request),
          "MPI_Ialltoallv");
  }

  void start_gather(MPI_Comm comm) override {
    const auto mine = static_cast<std::size_t>(parts_.counts[rank_]);
    const std::span<T> own = values_.subspan(static_cast<std::size_t>(parts_.begins[rank_]), mine);
    std::vector<std::span<const T>> terms;
    for (std::size_t r = 0; r < weights_.size(); ++r) {
      terms.push_back(r == rank_ ? own : received_.subspan(r * mine, mine));
    }
    detail::weighted_sum<T>(terms, weights_, own);
    check(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values_.data(), parts_.counts.data(),
                          parts_.begins.data(), type_of<T>(), comm, &request),
          "MPI_Iallgatherv");
  }

 private:
  std::span<T> values_;
  std::vector<double> weights_;
  std::size_t rank_;
  Parts parts_;
  std::span<T> received_;
  std::vector<int> send_counts_, counts_, begins_;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator()
      : plain_(duplicate()), exchange_(duplicate()), gather_(duplicate()), last_(duplicate()) {
    MPI_Comm_rank(plain_, &rank_);
    MPI_Comm_size(plain_, &size_);
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) override {
    STEADY_CHECK(ShapeError, mine.size() * static_cast<std::size_t>(size_) == all.size(),
                 "communicator: gathers {} bytes of each rank into {}", mine.size(), all.size());
    const int n = as_count(mine.size());
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallgather(mine.data(), n, MPI_BYTE, all.data(), n, MPI_BYTE, plain_, &request),
          "MPI_Iallgather");
    finish(request, "a gather");
  }

  void broadcast_bytes(std::span<std::byte> bytes, int root) override {
    STEADY_CHECK(Error, root >= 0 && root < size_,
                 "communicator: there is no rank {} to broadcast from", root);
    constexpr std::size_t Piece = std::size_t{1} << 28;
    for (std::size_t at = 0; at < bytes.size(); at += Piece) {
      const std::size_t n = std::min(Piece, bytes.size() - at);
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Ibcast(bytes.data() + at, as_count(n), MPI_BYTE, root, plain_, &request),
            "MPI_Ibcast");
      finish(request, "a broadcast");
    }
  }

  void barrier() override {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibarrier(plain_, &request), "MPI_Ibarrier");
    finish(request, "a barrier", std::numeric_limits<double>::infinity());
  }

  std::unique_ptr<Pending> start_sum(std::span<float> values,
                                     std::span<const double> weights) override {
    return start(values, weights);
  }
  std::unique_ptr<Pending> start_sum(std::span<double> values,
                                     std::span<const double> weights) override {
    return start(values, weights);
  }

  /// Moves all sums on, without waiting.
  void progress() {
    bool all_before_gather = true;
    for (const std::shared_ptr<Sum>& sum : sums_) {
      int done = 0;
      check(MPI_Test(&sum->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done != 0 && !sum->gathering && all_before_gather) {
        sum->gathering = true;
        sum->start_gather(gather_);
        check(MPI_Test(&sum->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      }
      sum->over = sum->gathering && done != 0;
      all_before_gather = all_before_gather && sum->gathering;
    }
    while (!sums_.empty() && sums_.front()->over) {
      if (spare_.size() < 8) spare_.push_back(std::move(sums_.front()->scratch));
      sums_.pop_front();
    }
  }

  template <class F>
  void wait_until(const char* what, double at_most, F&& done) {
    const auto start = Clock::now();
    for (std::int64_t polls = 1; !done(); ++polls) {
      if (polls > 1000) std::this_thread::yield();
      if (polls % 1000 != 0) continue;
      const double waited = std::chrono::duration<double>(Clock::now() - start).count();
      if (waited <= at_most) continue;
      broken_ = true;
      throw Error(fmt::format(
          "communicator: waited {:.0f} s for the other ranks in {}: one hangs, or the ranks do not "
          "do the same things in the same order (STEADY_MPI_TIMEOUT sets the seconds)",
          waited, what));
    }
  }

  /// Whether all ranks come to their end, and what hash of a line they bring, within two seconds.
  bool meet(std::uint64_t mine, std::vector<std::uint64_t>& all) {
    if (broken_) return false;
    all.resize(static_cast<std::size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Iallgather(&mine, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, last_, &request) !=
        MPI_SUCCESS) {
      return false;
    }
    const auto start = Clock::now();
    int done = 0;
    while (done == 0 && Clock::now() - start < std::chrono::seconds(2)) {
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
      std::this_thread::yield();
    }
    return done != 0;
  }

  void set_broken() { broken_ = true; }
  [[nodiscard]] double timeout() const { return timeout_; }

 private:
  void finish(MPI_Request request, const char* what) { finish(request, what, timeout_); }
  void finish(MPI_Request request, const char* what, double at_most) {
    wait_until(what, at_most, [&] {
      progress();
      int done = 0;
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
      return done != 0;
    });
  }

  template <class T>
  std::unique_ptr<Pending> start(std::span<T> values, std::span<const double> weights);

  MPI_Comm plain_, exchange_, gather_, last_;
  int rank_ = 0;
  int size_ = 1;
  double timeout_ = timeout_seconds();
  bool broken_ = false;  // no MPI call may follow: memory that it writes to may be gone
  std::deque<std::shared_ptr<Sum>> sums_;
  std::vector<std::vector<std::byte>> spare_;  // scratch for the next sums, that of late in a cache
};

class PendingSum final : public Pending {
 public:
  PendingSum(MpiCommunicator& communicator, std::shared_ptr<Sum> sum)
      : communicator_(communicator), sum_(std::move(sum)) {}
  ~PendingSum() override {
    if (!sum_->over) communicator_.set_broken();
  }
  bool poll() override {
    if (!sum_->over) communicator_.progress();
    return sum_->over;
  }
  void wait() override {
    communicator_.wait_until("a sum", communicator_.timeout(), [this] { return poll(); });
  }

 private:
  MpiCommunicator& communicator_;
  std::shared_ptr<Sum> sum_;
};

template <class T>
std::unique_ptr<Pending> MpiCommunicator::start(std::span<T> values,
                                                std::span<const double> weights) {
  detail::check_weights(weights, size_);
  std::vector<std::byte> scratch;
  if (!spare_.empty()) {
    scratch = std::move(spare_.back());
    spare_.pop_back();
  }
  sums_.push_back(
      std::make_shared<SumOf<T>>(values, weights, rank_, exchange_, std::move(scratch)));
  return std::make_unique<PendingSum>(*this, sums_.back());
}

// --- beginning and end ---------------------------------------------------------------------------

MpiCommunicator* ranks = nullptr;  // while MPI runs
bool all_failed = false;           // and know it of each other

void print_line(std::string_view line) {
  std::fflush(stdout);
  const std::string text = std::string(line) + "\n";
  (void)!::write(STDERR_FILENO, text.data(), text.size());
}

[[noreturn]] void abort_run(std::string_view line, int code) {
  print_line(fmt::format("{}: {}", rank_text(ranks->rank(), ranks->size()), line));
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

std::string what_is_thrown() {
  const std::exception_ptr thrown = std::current_exception();
  if (!thrown) return "terminated without an exception";
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "ended by an exception of unknown type";
  }
}

void at_exit(int status, void* /*unused*/) {
  if (ranks == nullptr) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  std::vector<std::uint64_t> others;
  if (status != 0 && !all_failed && !ranks->meet(static_cast<std::uint64_t>(status), others)) {
    abort_run(fmt::format("ended with exit code {} while other ranks went on", status), status);
  }
  MPI_Finalize();  // waits for those that still work
}

}  // namespace

bool has_mpi() { return true; }

namespace detail {

Communicator& start_mpi() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  }
  static MpiCommunicator communicator;
  if (ranks != nullptr) return communicator;
  ranks = &communicator;
  if (initialized == 0) ::on_exit(at_exit, nullptr);  // before the communicator dies
  if (ranks->size() > 1) std::set_terminate([] { abort_run(what_is_thrown(), 1); });
  return communicator;
}

bool fail_mpi(std::string_view line, int code) {
  if (ranks == nullptr || ranks->size() == 1) return false;
  const std::uint64_t mine = std::hash<std::string_view>()(line);
  std::vector<std::uint64_t> all;
  if (!ranks->meet(mine, all)) abort_run(line, code);
  all_failed = true;
  if (ranks->rank() == 0) {
    print_line(line);
  } else if (mine != all[0]) {
    print_line(fmt::format("{}: {}", rank_text(ranks->rank(), ranks->size()), line));
  }
  return true;
}

}  // namespace detail

#else

bool has_mpi() { return false; }

namespace detail {
Communicator& start_mpi() { throw Error("world: built without MPI"); }
bool fail_mpi(std::string_view /*line*/, int /*code*/) { return false; }
}  // namespace detail

#endif

}  // namespace steady::distributed
