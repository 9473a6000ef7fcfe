#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace steady::examples {

/// A text table: columns as wide as their widest cell, numbers to the right, words to the left.
class Table {
 public:
  explicit Table(std::vector<std::string> headings);

  /// Throws Error unless there is one cell per heading.
  void add_row(std::vector<std::string> cells);
  /// Headings, a rule, then the rows; every line ends without trailing blanks.
  [[nodiscard]] std::string str() const;

 private:
  std::vector<std::vector<std::string>> lines_;  // the headings first
};

std::ostream& operator<<(std::ostream& out, const Table& table);

}  // namespace steady::examples
