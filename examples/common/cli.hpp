#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <steadygrad/core/error.hpp>
#include <string>
#include <utility>

namespace steady::examples {

/// An option whose value is refused after parsing; ends the program like any bad option.
class OptionError : public Error {
 public:
  using Error::Error;
};

/// Adds an option that holds one number in [low, high], read with std::from_chars: the whole text
/// must be the number, and no locale changes what it means. `value` holds the default.
/// T: int, std::int64_t, std::uint64_t or double.
template <class T>
CLI::Option* add_number(CLI::App& app, const std::string& name, T& value,
                        const std::string& description, T low = std::numeric_limits<T>::lowest(),
                        T high = std::numeric_limits<T>::max());

/// The result of `make()`; its Error becomes an OptionError that begins with the option's name.
/// For values with a grammar of their own: checked_option("--norm", [&] { return parse(text); }).
template <class F>
auto checked_option(const std::string& name, F&& make) {
  try {
    return std::forward<F>(make)();
  } catch (const Error& error) {
    throw OptionError(name + ": " + error.what());
  }
}

/// Joins the ranks of mpirun (see ranks.hpp), parses the command line, runs `body` and returns the
/// program's exit code: that of `body`, 0 after --help, 2 with one line on standard error for a bad
/// option or value, 128 + signal with one line for Stopped, 1 with one line for any other
/// exception. On several ranks a failure of one ends all (distributed::fail).
int run_program(CLI::App& app, int argc, const char* const* argv, const std::function<int()>& body);

}  // namespace steady::examples
