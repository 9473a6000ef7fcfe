#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace steady {

/// Base of every exception the library throws. The text has one form:
/// `op: rule; got name shape, name shape`, with a hint where the cure is known.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
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
