#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace steady {

/// Base of every exception the library throws. The text has one form:
/// `op: rule; got name shape, name shape`, with a hint where the cure is known. An error that
/// leaves a layer carries the layer's path: `in 'block3.norm1': op: ...`.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text) : std::runtime_error(text), text_(text) {}
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

  /// Puts `in 'path': ` before the text; the first path given stays.
  void locate(const std::string& path) {
    if (located_ || path.empty()) return;
    located_ = true;
    text_ = fmt::format("in '{}': {}", path, text_);
  }

 private:
  std::string text_;
  bool located_ = false;
};

/// A tensor's shape, rank or dtype breaks an operation's rule.
class ShapeError : public Error {
 public:
  using Error::Error;
};

/// A file cannot be read, written or trusted.
class IoError : public Error {
 public:
  using Error::Error;
};

/// A NaN or an infinity turned up where it may not.
class NonFiniteError : public Error {
 public:
  using Error::Error;
};

}  // namespace steady

/// Throws ErrorType with the formatted message unless `condition` holds.
#define STEADY_CHECK(ErrorType, condition, ...)  \
  do {                                           \
    if (!(condition)) [[unlikely]]               \
      throw ErrorType(fmt::format(__VA_ARGS__)); \
  } while (false)
