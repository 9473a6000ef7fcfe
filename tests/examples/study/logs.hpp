#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <steadygrad/core/io/run_record.hpp>
#include <string>

namespace steady::test {

/// The logs of a study by file name.
inline std::map<std::string, RunRecord> logs_in(const std::filesystem::path& out) {
  std::map<std::string, RunRecord> logs;
  for (const auto& entry : std::filesystem::directory_iterator(out / "cells")) {
    if (entry.path().extension() == ".h5") {
      logs.emplace(entry.path().filename().string(), read_run(entry.path()));
    }
  }
  return logs;
}

inline std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

/// Every number of the runs is the same; what computed them may differ.
inline void expect_same_numbers(const std::map<std::string, RunRecord>& a,
                                const std::map<std::string, RunRecord>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, run] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    const RunRecord& other = b.at(name);
    EXPECT_TRUE(run.complete && other.complete) << name;
    EXPECT_EQ(run.options, other.options) << name;
    ASSERT_EQ(run.results.size(), other.results.size()) << name;
    for (std::size_t i = 0; i < run.results.size(); ++i) {
      EXPECT_EQ(run.results[i].first, other.results[i].first) << name;
      EXPECT_EQ(hdf5::to_string(run.results[i].second), hdf5::to_string(other.results[i].second))
          << name << " " << run.results[i].first;
    }
    ASSERT_EQ(run.series.size(), other.series.size()) << name;
    for (std::size_t i = 0; i < run.series.size(); ++i) {
      EXPECT_EQ(run.series[i].path, other.series[i].path) << name;
      EXPECT_EQ(run.series[i].step, other.series[i].step) << name;
      EXPECT_EQ(run.series[i].names, other.series[i].names) << name;
      EXPECT_EQ(run.series[i].histogram, other.series[i].histogram) << name;
      ASSERT_EQ(run.series[i].values.size(), other.series[i].values.size()) << name;
      for (std::size_t c = 0; c < run.series[i].values.size(); ++c) {
        EXPECT_TRUE(same_bits(run.series[i].values[c], other.series[i].values[c]))
            << name << " " << run.series[i].path[1] << " " << run.series[i].names[c];
      }
    }
  }
}

inline std::string result_of(const RunRecord& run, std::string_view name) {
  const hdf5::Value* value = find(run.results, name);
  return value == nullptr ? "" : hdf5::to_string(*value);
}

}  // namespace steady::test
