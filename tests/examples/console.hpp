#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "examples/common/progress.hpp"

namespace steady::test {

/// A console that keeps what is written, with a width and a clock under the test's control.
struct FakeConsole {
  std::ostringstream out;
  int width = 80;
  double now = 1000.0;

  examples::Console console(bool terminal) {
    return {&out, terminal, [this] { return width; }, [this] { return now; }};
  }
};

/// `text` cut at `separator`; no empty last piece.
inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> pieces;
  std::istringstream stream(text);
  for (std::string piece; std::getline(stream, piece, separator);) pieces.push_back(piece);
  return pieces;
}

}  // namespace steady::test
