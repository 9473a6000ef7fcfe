#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace steady::examples {

/// Where a program's lines go, and what that place can do. Tests make their own.
struct Console {
  std::ostream* out = nullptr;
  bool terminal = false;            // can redraw a line
  std::function<int()> width;       // columns, asked before each redraw
  std::function<double()> seconds;  // a monotonic clock

  /// Standard output.
  [[nodiscard]] static Console standard();
};

/// Whether a line can be redrawn: on a terminal whose TERM is set and not "dumb".
[[nodiscard]] bool can_redraw(bool is_terminal, const char* term);

/// Auto: Bar on a terminal, Plain elsewhere. Off prints nothing.
enum class ProgressMode { Auto, Bar, Plain, Off };
/// "auto", "bar", "plain" or "off"; throws Error otherwise.
[[nodiscard]] ProgressMode parse_progress_mode(std::string_view text);

/// Reports how far a loop of known length has come: metrics, images per second and time left.
/// Bar: one line redrawn in place, at most ten times a second, never wider than the terminal.
/// Plain: whole lines without control characters, at most one per `plain_seconds` and per percent.
/// Neither uses colours. The last line always shows the end.
class Progress {
 public:
  struct Options {
    ProgressMode mode = ProgressMode::Auto;
    std::string unit = "images";
    double plain_seconds = 5.0;
    std::int64_t done = 0;  ///< steps done before, of a loop that goes on
  };
  struct Metric {
    std::string_view name;
    double value;
  };

  Progress(std::string title, std::int64_t steps, Options options,
           Console console = Console::standard());
  Progress(std::string title, std::int64_t steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// One step that handled `items` units is done; the metrics replace those shown before.
  void step(std::int64_t items, std::initializer_list<Metric> metrics = {});
  /// Writes the last line, once. The destructor calls it too.
  void finish();

 private:
  [[nodiscard]] std::string text(double now) const;
  void draw_bar(double now);
  void draw_plain(double now);

  std::string title_;
  std::int64_t steps_;
  Options options_;
  Console console_;
  double start_;
  std::int64_t done_;
  std::int64_t items_ = 0;
  std::string metrics_;
  double last_draw_;
  std::int64_t last_draw_done_ = 0;
  std::size_t drawn_width_ = 0;
  bool finished_ = false;
};

/// Seconds as "7s", "1:05" or "2:03:04".
[[nodiscard]] std::string format_duration(double seconds);

}  // namespace steady::examples
