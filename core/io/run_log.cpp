#include <steadygrad/core/io/run_log.hpp>

#include <algorithm>
#include <bit>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/replace_file.hpp>
#include <steadygrad/core/library_report.hpp>

namespace steady {
namespace {

using Clock = std::chrono::steady_clock;

std::string shown(const SeriesPath& path) {
  std::string text;
  for (const std::string& part : path) text += "/" + part;
  return text;
}

std::vector<hdf5::Column> columns_of(std::span<const LogValue> cells,
                                     std::span<const std::int64_t> histogram) {
  std::vector<hdf5::Column> columns{{.name = "step", .kind = hdf5::Column::Kind::I64}};
  for (const LogValue& cell : cells) columns.push_back({.name = std::string(cell.name)});
  if (!histogram.empty()) {
    columns.push_back({"histogram", hdf5::Column::Kind::I64, std::ssize(histogram)});
  }
  return columns;
}

/// Without building a list: this is asked for every row.
bool fits(const std::vector<hdf5::Column>& columns, std::span<const LogValue> cells,
          std::span<const std::int64_t> histogram) {
  const std::size_t extra = histogram.empty() ? 1 : 2;
  if (columns.size() != cells.size() + extra) return false;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (columns[i + 1].name != cells[i].name) return false;
  }
  const std::int64_t extent = columns.back().name == "histogram" ? columns.back().extent : 0;
  return extent == std::ssize(histogram);
}

}  // namespace

RunLog::RunLog(std::filesystem::path path, const hdf5::Attributes& options,
               RunLogOptions log_options)
    : path_(std::move(path)), o_(log_options), file_(hdf5::File::create_in_memory(path_.string())) {
  const hdf5::Group root = file_.root();
  root.set_attribute("format", "steadygrad run 1");
  root.set_attribute("complete", std::int64_t{0});
  for (const auto& [name, value] : library_facts()) root.set_attribute(name, value);
  root.set_attribute("hdf5", hdf5::version());
  (void)root.group("results", true);
  const hdf5::Group group = root.group("options", true);
  for (std::size_t i = 0; i < options.size(); ++i) {
    const auto same = [&](const auto& other) { return other.first == options[i].first; };
    STEADY_CHECK(Error, std::none_of(options.begin(), options.begin() + std::ptrdiff_t(i), same),
                 "RunLog: the option '{}' is given twice", options[i].first);
    group.set_attribute(options[i].first, options[i].second);
  }
  flush();
}

RunLog::~RunLog() {
  try {
    if (!closed_) flush();
  } catch (...) {  // a destructor must not throw: close() is there for who wants to know
    closed_ = true;
  }
}

void RunLog::set(std::string_view name, const hdf5::Value& value) {
  STEADY_CHECK(Error, !closed_, "RunLog: '{}' is closed", path_.string());
  file_.root().group("results").set_attribute(name, value);
}

hdf5::Table RunLog::make_table(const SeriesPath& path, std::vector<hdf5::Column> columns) {
  STEADY_CHECK(Error, path.size() >= 2, "RunLog: a series needs a group and a name; got '{}'",
               shown(path));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const bool reserved =
        (columns[i].name == "step" && i != 0) ||
        (columns[i].name == "histogram" && columns[i].kind != hdf5::Column::Kind::I64);
    const auto same = [&](const hdf5::Column& other) { return other.name == columns[i].name; };
    STEADY_CHECK(Error,
                 !reserved && !columns[i].name.empty() &&
                     std::none_of(columns.begin(), columns.begin() + std::ptrdiff_t(i), same),
                 "RunLog: series '{}': the name '{}' is empty, reserved or given twice",
                 shown(path), columns[i].name);
  }
  for (const auto& [other, unused] : series_) {
    const std::size_t common = std::min(other.size(), path.size());
    STEADY_CHECK(
        Error, !std::equal(path.begin(), path.begin() + std::ptrdiff_t(common), other.begin()),
        "RunLog: '{}' cannot lie in the way of the series '{}'", shown(path), shown(other));
  }
  hdf5::Group group = file_.root();
  for (std::size_t i = 0; i + 1 < path.size(); ++i) group = group.group(path[i], true);
  return group.create_table(path.back(), std::move(columns));
}

RunLog::Series& RunLog::series_at(const SeriesPath& path, std::span<const LogValue> cells,
                                  std::span<const std::int64_t> histogram) {
  const auto at = series_.find(path);
  if (at == series_.end()) {
    hdf5::Table table = make_table(path, columns_of(cells, histogram));
    return series_.emplace(path, Series{std::move(table), {}}).first->second;
  }
  STEADY_CHECK(Error, fits(at->second.table.columns(), cells, histogram),
               "RunLog: a row of series '{}' has other names than its first row", shown(path));
  return at->second;
}

void RunLog::append(const SeriesPath& path, std::int64_t step, std::span<const LogValue> cells,
                    std::span<const std::int64_t> histogram) {
  STEADY_CHECK(Error, !closed_, "RunLog: '{}' is closed", path_.string());
  std::vector<std::uint64_t>& words = series_at(path, cells, histogram).waiting;
  words.push_back(std::bit_cast<std::uint64_t>(step));
  for (const LogValue& cell : cells) words.push_back(std::bit_cast<std::uint64_t>(cell.value));
  for (const std::int64_t count : histogram) words.push_back(std::bit_cast<std::uint64_t>(count));
  if (o_.flush_seconds < 0) return;
  const auto since = Clock::now() - flushed_;
  if (std::chrono::duration<double>(since).count() >= o_.flush_seconds &&
      since >= 50 * flush_takes_) {
    flush();
  }
}

void RunLog::write() {
  for (auto& [path, series] : series_) {
    series.table.append(series.waiting);
    series.waiting.clear();
  }
  replace_file(path_, file_.image());
}

void RunLog::flush() {
  const auto start = Clock::now();
  write();
  flushed_ = Clock::now();
  flush_takes_ = flushed_ - start;
}

void RunLog::close() {
  STEADY_CHECK(Error, !closed_, "RunLog: '{}' is closed already", path_.string());
  file_.root().set_attribute("complete", std::int64_t{1});
  flush();
  closed_ = true;
}

}  // namespace steady
