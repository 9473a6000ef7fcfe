#include "examples/common/table.hpp"

#include <algorithm>
#include <steadygrad/core/error.hpp>
#include <utility>

namespace steady::examples {
namespace {

// Columns, not bytes: UTF-8 continuation bytes take no room.
std::size_t columns(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

bool is_number(const std::string& text) {
  if (text.empty() || text == "-" || text == "nan" || text == "inf" || text == "-inf") return true;
  return text.find_first_of("0123456789") <= text.find_first_not_of("+-.");
}

}  // namespace

Table::Table(std::vector<std::string> headings) { lines_.push_back(std::move(headings)); }

void Table::add_row(std::vector<std::string> cells) {
  STEADY_CHECK(Error, cells.size() == lines_.front().size(),
               "table: one cell per heading; got {} for {}", cells.size(), lines_.front().size());
  lines_.push_back(std::move(cells));
}

std::string Table::str() const {
  const std::size_t count = lines_.front().size();
  std::vector<std::size_t> width(count, 0);
  std::vector<bool> right(count, lines_.size() > 1);
  for (std::size_t row = 0; row < lines_.size(); ++row) {
    for (std::size_t c = 0; c < count; ++c) {
      width[c] = std::max(width[c], columns(lines_[row][c]));
      right[c] = right[c] && (row == 0 || is_number(lines_[row][c]));
    }
  }
  std::string text;
  for (std::size_t row = 0; row < lines_.size(); ++row) {
    std::string line;
    for (std::size_t c = 0; c < count; ++c) {
      const std::string blanks(width[c] - columns(lines_[row][c]), ' ');
      line += (c > 0 ? "  " : "") + (right[c] ? blanks + lines_[row][c] : lines_[row][c] + blanks);
    }
    text += line.erase(line.find_last_not_of(' ') + 1) + "\n";
    if (row > 0) continue;
    for (std::size_t c = 0; c < count; ++c)
      text += (c > 0 ? "  " : "") + std::string(width[c], '-');
    text += "\n";
  }
  return text;
}

std::ostream& operator<<(std::ostream& out, const Table& table) { return out << table.str(); }

}  // namespace steady::examples
