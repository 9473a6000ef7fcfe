#include <steadygrad/core/io/run_record.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <steadygrad/core/error.hpp>

namespace steady {
namespace {

/// Cuts records into columns.
RunSeries read_series(const hdf5::Table& table, SeriesPath path) {
  RunSeries series;
  series.path = std::move(path);
  const std::vector<hdf5::Column>& columns = table.columns();
  const hdf5::Column step{"step", hdf5::Column::Kind::I64, 1};
  STEADY_CHECK(IoError, !columns.empty() && columns[0] == step,
               "read_run: the series '{}' has no steps", fmt::join(series.path, "/"));
  const std::vector<std::uint64_t> words = table.read();
  const auto width = static_cast<std::size_t>(table.width());
  const std::size_t rows = words.size() / width;
  for (std::size_t r = 0; r < rows; ++r) {
    series.step.push_back(std::bit_cast<std::int64_t>(words[r * width]));
  }
  std::size_t at = 1;
  for (std::size_t c = 1; c < columns.size(); ++c) {
    const hdf5::Column& column = columns[c];
    const bool number = column.kind == hdf5::Column::Kind::F64 && column.extent == 1;
    const bool histogram = column.kind == hdf5::Column::Kind::I64 && column.name == "histogram";
    STEADY_CHECK(IoError, number || histogram, "read_run: the series '{}' has an odd column '{}'",
                 fmt::join(series.path, "/"), column.name);
    if (number) {
      series.names.push_back(column.name);
      std::vector<double>& values = series.values.emplace_back();
      for (std::size_t r = 0; r < rows; ++r) {
        values.push_back(std::bit_cast<double>(words[r * width + at]));
      }
    } else {
      series.bins = column.extent;
      const auto bins = static_cast<std::size_t>(column.extent);
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t b = 0; b < bins; ++b) {
          series.histogram.push_back(std::bit_cast<std::int64_t>(words[r * width + at + b]));
        }
      }
    }
    at += static_cast<std::size_t>(column.extent);
  }
  return series;
}

void read_group(const hdf5::Group& group, const SeriesPath& path, const SeriesFilter& wanted,
                std::vector<RunSeries>& into) {
  const auto below = [&](const std::string& name) {
    SeriesPath result = path;
    result.push_back(name);
    return result;
  };
  for (const std::string& name : group.datasets()) {
    if (wanted && !wanted(below(name))) continue;
    into.push_back(read_series(group.open_table(name), below(name)));
  }
  for (const std::string& name : group.groups())
    read_group(group.group(name), below(name), wanted, into);
}

}  // namespace

const hdf5::Value* find(const hdf5::Attributes& attributes, std::string_view name) {
  const auto at = std::ranges::find_if(attributes, [&](const auto& a) { return a.first == name; });
  return at == attributes.end() ? nullptr : &at->second;
}

const std::vector<double>& RunSeries::column(std::string_view name) const {
  const auto at = std::ranges::find(names, name);
  STEADY_CHECK(Error, at != names.end(), "series '{}' has no column '{}'; it has {}",
               fmt::join(path, "/"), name, fmt::join(names, ", "));
  return values[static_cast<std::size_t>(at - names.begin())];
}

const RunSeries* RunRecord::find(const SeriesPath& path) const {
  const auto at = std::ranges::find(series, path, &RunSeries::path);
  return at == series.end() ? nullptr : &*at;
}

RunRecord read_run(const std::filesystem::path& path, const SeriesFilter& wanted) {
  const hdf5::File file = hdf5::File::open(path);
  const hdf5::Group root = file.root();
  RunRecord record;
  record.facts = root.attributes();
  const hdf5::Value* format = find(record.facts, "format");
  STEADY_CHECK(IoError, format != nullptr && hdf5::to_string(*format) == "steadygrad run 1",
               "read_run: '{}' is no log of a run", path.string());
  const hdf5::Value* complete = find(record.facts, "complete");
  record.complete = complete != nullptr && hdf5::to_string(*complete) == "1";
  std::erase_if(record.facts, [](const auto& fact) {
    return fact.first == "format" || fact.first == "complete";
  });
  record.options = root.group("options").attributes();
  record.results = root.group("results").attributes();
  read_group(root, {}, wanted, record.series);
  return record;
}

}  // namespace steady
