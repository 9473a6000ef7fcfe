#pragma once

#include <functional>
#include <steadygrad/core/error.hpp>
#include <string>

namespace steady::testing_support {

/// The text of the Error that f throws, "no exception" when it throws none.
inline std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no exception";
}

}  // namespace steady::testing_support
