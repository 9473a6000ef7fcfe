#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <steadygrad/layers/norm/column_plan.hpp>

namespace steady {

/// Makes rows of an array [rows, channels] that need not exist as a whole.
template <class T>
class ColumnSource {
 public:
  /// Elements of the array.
  [[nodiscard]] virtual std::size_t size() const = 0;
  /// As many rows are made at once, of which a caller may want a part.
  [[nodiscard]] virtual std::int64_t rows_at_once() const = 0;
  /// The rows [first, first + count), in memory of the calling thread that holds them until its
  /// next call.
  [[nodiscard]] virtual const T* make(std::int64_t first, std::int64_t count) const = 0;

 protected:
  ColumnSource() = default;
  ColumnSource(const ColumnSource&) = default;
  ColumnSource& operator=(const ColumnSource&) = default;
  ~ColumnSource() = default;
};

/// An input [rows, channels] of a column kernel: memory, or a source, which must outlive it.
template <class T>
class ColumnRows {
 public:
  template <class Memory>
  requires std::convertible_to<const Memory&, std::span<const T>> ColumnRows(const Memory& memory)
      : memory_(memory) {}
  ColumnRows(const ColumnSource<T>& source) : source_(&source) {}

  [[nodiscard]] std::size_t size() const {
    return source_ == nullptr ? memory_.size() : source_->size();
  }

  /// Calls body(line, lines, data) for the lines [line, line + lines) of a plan, data their first
  /// element: at once, or in parts that a cache holds where they have to be made.
  template <class Body>
  void for_lines(const detail::ColumnPlan& plan, std::int64_t line, std::int64_t lines,
                 Body&& body) const {
    if (source_ == nullptr) return body(line, lines, memory_.data() + line * plan.period);
    constexpr std::int64_t Sums = detail::ColumnPlan::SumLines;  // which a part must not cut
    const std::int64_t elements =
        std::max(PartElements, 4 * source_->rows_at_once() * plan.channels);
    const std::int64_t part = std::max(elements / plan.period / Sums, std::int64_t{1}) * Sums;
    const std::int64_t end = line + lines;
    for (; line < end; line += part) {
      const std::int64_t count = std::min(part, end - line);
      body(line, count, source_->make(line * plan.fold, count * plan.fold));
    }
  }

  /// The rows that do not fill a line.
  [[nodiscard]] const T* rest(const detail::ColumnPlan& plan) const {
    const std::int64_t first = plan.lines * plan.fold;
    return source_ == nullptr ? memory_.data() + first * plan.channels
                              : source_->make(first, plan.rest_rows);
  }

 private:
  static constexpr std::int64_t PartElements = 16384;

  std::span<const T> memory_;
  const ColumnSource<T>* source_ = nullptr;
};

}  // namespace steady
