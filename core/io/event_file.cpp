#include <steadygrad/core/io/event_file.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/crc_table-inl.hpp>
#include <steadygrad/core/io/descriptor-inl.hpp>
#include <string>
#include <vector>

#ifdef STEADY_PROTOBUF
#include "event_file.pb.h"
#endif

namespace steady {
namespace {

constexpr std::array<std::uint32_t, 256> CrcTable = detail::crc_table<std::uint32_t>(0x82F63B78);

}  // namespace

std::uint32_t crc32c(std::span<const char> bytes) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes)
    crc = crc >> 8 ^ CrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return crc ^ 0xFFFFFFFFU;
}

#ifdef STEADY_PROTOBUF

namespace {

/// The format stores sums in this disguise, so that a sum over records is no sum of sums.
std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xA282EAD8U; }

template <class T>
void put(std::string& bytes, T value) {
  static_assert(std::endian::native == std::endian::little);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// length, its sum, the message, its sum
std::string framed(const std::string& message) {
  std::string record;
  put(record, static_cast<std::uint64_t>(message.size()));
  put(record, masked(crc32c(record)));
  record += message;
  put(record, masked(crc32c(message)));
  return record;
}

/// The finite values of a tensor in equal bins between the least and the greatest.
struct Bins {
  double min = std::numeric_limits<double>::infinity();
  double max = -min;
  double sum = 0;
  double sum_squares = 0;
  std::vector<double> edges{};
  std::vector<std::int64_t> counts{};
};

template <class T>
Bins bins_of(std::span<const T> values) {
  constexpr std::size_t Count = 30;
  Bins bins;
  for (const T value : values) {
    const auto v = static_cast<double>(value);
    if (!std::isfinite(v)) continue;
    bins.min = std::min(bins.min, v);
    bins.max = std::max(bins.max, v);
    bins.sum += v;
    bins.sum_squares += v * v;
  }
  if (bins.min > bins.max) bins.min = bins.max = 0;  // no finite value
  const double width = (bins.max - bins.min) / Count;
  const std::size_t count = width > 0 && std::isfinite(width) ? Count : 1;
  bins.counts.resize(count);
  for (std::size_t i = 1; i < count; ++i) {
    bins.edges.push_back(bins.min + width * static_cast<double>(i));
  }
  bins.edges.push_back(bins.max);
  for (const T value : values) {
    const auto v = static_cast<double>(value);
    if (!std::isfinite(v)) continue;
    const auto edge = std::lower_bound(bins.edges.begin(), bins.edges.end() - 1, v);
    ++bins.counts[static_cast<std::size_t>(edge - bins.edges.begin())];
  }
  return bins;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

bool has_event_files() { return true; }

struct EventFile::Impl {
  std::filesystem::path path{};
  EventFileOptions options{};
  detail::Descriptor file{};
  std::string waiting{};  // whole records
  off_t written = 0;
  std::chrono::steady_clock::time_point flushed = std::chrono::steady_clock::now();

  void add(event_format::Event& event) {
    STEADY_CHECK(Error, file.is_open(), "EventFile: {} is closed", path.string());
    event.set_wall_time(options.wall_time());
    waiting += framed(event.SerializeAsString());
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - flushed;
    if (since.count() >= options.flush_seconds) flush();
  }

  void flush() {
    const detail::LimitIsAnError limit;
    if (!file.write(std::as_bytes(std::span(waiting)))) {
      const std::string reason = detail::system_reason();
      (void)file.truncate(written);  // no half record stays
      throw IoError(fmt::format("EventFile: cannot write {}: {}", path.string(), reason));
    }
    written += static_cast<off_t>(waiting.size());
    waiting.clear();
    flushed = std::chrono::steady_clock::now();
  }
};

EventFile::EventFile(const std::filesystem::path& directory, const EventFileOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  if (!impl_->options.wall_time) impl_->options.wall_time = seconds_now;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  STEADY_CHECK(IoError, !error, "EventFile: cannot make {}: {}", directory.string(),
               error.message());
  const auto seconds = static_cast<std::int64_t>(impl_->options.wall_time());
  for (int number = 0; !impl_->file.is_open(); ++number) {
    impl_->path =
        directory / fmt::format("events.out.tfevents.{:010}.{}.steadygrad", seconds, number);
    impl_->file = detail::Descriptor(impl_->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
    STEADY_CHECK(IoError, impl_->file.is_open() || errno == EEXIST, "EventFile: cannot make {}: {}",
                 impl_->path.string(), detail::system_reason());
  }
  event_format::Event version;
  version.set_file_version("brain.Event:2");
  impl_->add(version);
}

EventFile::~EventFile() {
  try {
    close();
  } catch (const Error&) {  // the descriptor closes itself
  }
}

void EventFile::scalar(std::string_view tag, std::int64_t step, double value) {
  event_format::Event event;
  event.set_step(step);
  event_format::Summary::Value& v = *event.mutable_summary()->add_value();
  v.set_tag(std::string(tag));
  v.set_simple_value(static_cast<float>(value));
  impl_->add(event);
}

void EventFile::histogram(std::string_view tag, std::int64_t step, const EventHistogram& h) {
  STEADY_CHECK(Error, !h.edges.empty() && h.edges.size() == h.counts.size(),
               "EventFile: histogram '{}' needs an edge for each count; got {} and {}", tag,
               h.edges.size(), h.counts.size());
  event_format::Event event;
  event.set_step(step);
  event_format::Summary::Value& v = *event.mutable_summary()->add_value();
  v.set_tag(std::string(tag));
  event_format::Histogram& out = *v.mutable_histo();
  out.set_min(h.min);
  out.set_max(h.max);
  out.set_sum(h.sum);
  out.set_sum_squares(h.sum_squares);
  double number = 0;
  for (std::size_t i = 0; i < h.edges.size(); ++i) {
    out.add_bucket_limit(h.edges[i]);
    out.add_bucket(static_cast<double>(h.counts[i]));
    number += static_cast<double>(h.counts[i]);
  }
  out.set_num(number);
  impl_->add(event);
}

void EventFile::histogram(std::string_view tag, std::int64_t step, const Tensor& values) {
  const Bins bins =
      values.dtype() == Dtype::F64 ? bins_of(values.data<double>()) : bins_of(values.data<float>());
  histogram(tag, step,
            {.min = bins.min,
             .max = bins.max,
             .sum = bins.sum,
             .sum_squares = bins.sum_squares,
             .edges = bins.edges,
             .counts = bins.counts});
}

void EventFile::flush() {
  STEADY_CHECK(Error, impl_->file.is_open(), "EventFile: {} is closed", impl_->path.string());
  impl_->flush();
}

void EventFile::close() {
  if (!impl_->file.is_open()) return;
  impl_->flush();
  STEADY_CHECK(IoError, impl_->file.close(), "EventFile: cannot close {}: {}", impl_->path.string(),
               detail::system_reason());
}

const std::filesystem::path& EventFile::path() const { return impl_->path; }

#else

bool has_event_files() { return false; }

struct EventFile::Impl {};

EventFile::EventFile(const std::filesystem::path&, const EventFileOptions&) {
  throw Error(
      "EventFile: this library was built without protobuf; "
      "apt-get install libprotobuf-dev protobuf-compiler, then configure again");
}
EventFile::~EventFile() = default;
void EventFile::scalar(std::string_view, std::int64_t, double) {}
void EventFile::histogram(std::string_view, std::int64_t, const EventHistogram&) {}
void EventFile::histogram(std::string_view, std::int64_t, const Tensor&) {}
void EventFile::flush() {}
void EventFile::close() {}
const std::filesystem::path& EventFile::path() const { throw Error("EventFile: no file"); }

#endif

}  // namespace steady
