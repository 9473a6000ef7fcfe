#include "examples/common/progress.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <steadygrad/core/error.hpp>
#include <utility>

namespace steady::examples {
namespace {

constexpr double RedrawSeconds = 0.1;
constexpr int DefaultWidth = 80;
constexpr std::size_t LongestBar = 24;
constexpr std::size_t ShortestBar = 6;

int terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                         : DefaultWidth;
}

}  // namespace

bool can_redraw(bool is_terminal, const char* term) {
  return is_terminal && term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
}

Console Console::standard() {
  return {&std::cout, can_redraw(isatty(STDOUT_FILENO) == 1, std::getenv("TERM")), terminal_width,
          [] {
            using Clock = std::chrono::steady_clock;
            return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
          }};
}

ProgressMode parse_progress_mode(std::string_view text) {
  if (text == "auto") return ProgressMode::Auto;
  if (text == "bar") return ProgressMode::Bar;
  if (text == "plain") return ProgressMode::Plain;
  if (text == "off") return ProgressMode::Off;
  throw Error(fmt::format("progress: one of auto, bar, plain, off; got '{}'", text));
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0.0 && seconds < 1e9)) return "?";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

Progress::Progress(std::string title, std::int64_t steps, Options options, Console console)
    : title_(std::move(title)),
      steps_(steps),
      options_(std::move(options)),
      console_(std::move(console)),
      start_(console_.seconds()),
      done_(options_.done),
      last_draw_(start_),
      last_draw_done_(done_) {
  STEADY_CHECK(Error, steps >= 1, "progress: needs at least one step; got {}", steps);
  if (options_.mode == ProgressMode::Auto) {
    options_.mode = console_.terminal ? ProgressMode::Bar : ProgressMode::Plain;
  }
}

Progress::Progress(std::string title, std::int64_t steps)
    : Progress(std::move(title), steps, Options{}) {}

Progress::~Progress() {
  try {
    finish();
  } catch (...) {
    // A stream that throws must not end a program that is already unwinding.
  }
}

void Progress::step(std::int64_t items, std::initializer_list<Metric> metrics) {
  ++done_;
  items_ += items;
  const double now = console_.seconds();
  const bool bar = options_.mode == ProgressMode::Bar;
  const bool plain = options_.mode == ProgressMode::Plain;
  const bool due = (bar && (drawn_width_ == 0 || now - last_draw_ >= RedrawSeconds)) ||
                   (plain && now - last_draw_ >= options_.plain_seconds &&
                    (done_ - last_draw_done_) * 100 >= steps_);
  if (!due && done_ < steps_) return;
  metrics_.clear();
  for (const Metric& metric : metrics) {
    metrics_ += fmt::format("  {} {:.4f}", metric.name, metric.value);
  }
  if (!due || done_ >= steps_) return;
  bar ? draw_bar(now) : draw_plain(now);
}

void Progress::finish() {
  if (std::exchange(finished_, true) || options_.mode == ProgressMode::Off) return;
  const double now = console_.seconds();
  if (options_.mode == ProgressMode::Bar) {
    draw_bar(now);
    *console_.out << '\n' << std::flush;
  } else {
    draw_plain(now);
  }
}

std::string Progress::text(double now) const {
  const double elapsed = now - start_;
  std::string line = fmt::format("{:3}%  {}/{}{}", done_ * 100 / steps_, done_, steps_, metrics_);
  if (elapsed > 0.0) {
    line += fmt::format("  {:.0f} {}/s", static_cast<double>(items_) / elapsed, options_.unit);
  }
  if (finished_) return line + "  in " + format_duration(elapsed);
  const double left = elapsed * static_cast<double>(steps_ - done_) /
                      static_cast<double>(std::max<std::int64_t>(done_ - options_.done, 1));
  return line + "  " + format_duration(left) + " left";
}

void Progress::draw_bar(double now) {
  // One column stays free: a full line would make some terminals wrap.
  const auto width = static_cast<std::size_t>(std::max(console_.width() - 1, 1));
  std::string line = title_ + "  " + text(now);
  const std::size_t room = width > line.size() + 3 ? width - line.size() - 3 : 0;
  if (room >= ShortestBar) {
    const std::size_t length = std::min(room, LongestBar);
    const std::size_t full =
        length * static_cast<std::size_t>(done_) / static_cast<std::size_t>(steps_);
    line.insert(title_.size() + 1, fmt::format("[{:#<{}}{:.<{}}]", "", full, "", length - full));
  }
  if (line.size() > width) line.resize(width);
  const std::size_t visible = line.size();
  if (visible < drawn_width_) line.append(std::min(drawn_width_, width) - visible, ' ');
  drawn_width_ = visible;
  last_draw_ = now;
  *console_.out << '\r' << line << std::flush;
}

void Progress::draw_plain(double now) {
  last_draw_ = now;
  last_draw_done_ = done_;
  *console_.out << title_ << "  " << text(now) << '\n' << std::flush;
}

}  // namespace steady::examples
