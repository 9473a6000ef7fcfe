#include "examples/common/cli.hpp"

#include <fmt/core.h>

#include <charconv>
#include <filesystem>
#include <iostream>
#include <steadygrad/core/distributed/world.hpp>
#include <type_traits>

#include "examples/common/ranks.hpp"
#include "examples/common/stop_signal.hpp"

namespace steady::examples {
namespace {

template <class T>
T parse_number(const std::string& name, const std::string& text, T low, T high) {
  constexpr const char* Kind = std::is_integral_v<T> ? "a whole number" : "a number";
  T value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = end == text.data() + text.size() && code != std::errc::invalid_argument;
  if (!whole || value != value) {
    throw CLI::ValidationError(name, fmt::format("'{}' is not {}", text, Kind));
  }
  if (code == std::errc::result_out_of_range || value < low || value > high) {
    const bool bounded_below = low != std::numeric_limits<T>::lowest();
    const bool bounded_above = high != std::numeric_limits<T>::max();
    std::string rule = "must fit its type";
    if (bounded_below && bounded_above) rule = fmt::format("must be {} to {}", low, high);
    if (bounded_below && !bounded_above) rule = fmt::format("must be at least {}", low);
    if (!bounded_below && bounded_above) rule = fmt::format("must be at most {}", high);
    throw CLI::ValidationError(name, fmt::format("{}; got {}", rule, text));
  }
  return value;
}

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (std::size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at)) {
    text.replace(at, 1, "; ");
  }
  return text;
}

}  // namespace

template <class T>
CLI::Option* add_number(CLI::App& app, const std::string& name, T& value,
                        const std::string& description, T low, T high) {
  const auto read = [&value, name, low, high](const CLI::results_t& results) {
    value = parse_number(name, results.back(), low, high);
    return true;
  };
  CLI::Option* option = app.add_option(name, CLI::callback_t(read), description);
  return option->expected(1)
      ->type_name(std::is_integral_v<T> ? "INT" : "NUMBER")
      ->default_str(fmt::format("{}", value));
}

template CLI::Option* add_number(CLI::App&, const std::string&, int&, const std::string&, int, int);
template CLI::Option* add_number(CLI::App&, const std::string&, std::int64_t&, const std::string&,
                                 std::int64_t, std::int64_t);
template CLI::Option* add_number(CLI::App&, const std::string&, std::uint64_t&, const std::string&,
                                 std::uint64_t, std::uint64_t);
template CLI::Option* add_number(CLI::App&, const std::string&, double&, const std::string&, double,
                                 double);

int run_program(CLI::App& app, int argc, const char* const* argv,
                const std::function<int()>& body) {
  const std::string name = std::filesystem::path(argv[0]).filename().string();
  const auto fail = [&](const std::string& text, int code) {
    std::cout << std::flush;
    return distributed::fail(name + ": " + text, code);
  };
  const auto bad_option = [&](const char* what) {
    return fail(fmt::format("{} ({} --help shows the options)", one_line(what), name), 2);
  };
  try {
    join_ranks(argc, argv);
    app.parse(argc, argv);
    return body();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error, std::cout, std::cerr);
    return bad_option(error.what());
  } catch (const OptionError& error) {
    return bad_option(error.what());
  } catch (const Stopped& stopped) {
    return fail(stopped.text, 128 + stopped.signal);
  } catch (const std::exception& error) {
    return fail(one_line(error.what()), 1);
  }
}

}  // namespace steady::examples
