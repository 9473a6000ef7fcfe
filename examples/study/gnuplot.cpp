#include "examples/study/gnuplot.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <steadygrad/core/error.hpp>

extern char** environ;

namespace steady::examples {
namespace {

/// Colours that stay apart for colour-blind readers, on light and dark pages alike (Okabe & Ito).
constexpr std::array Colours{"#E69F00", "#56B4E9", "#009E73", "#CC79A7",
                             "#0072B2", "#D55E00", "#8A8A8A", "#B8A500"};
/// From dark to bright, even in lightness.
constexpr const char* Palette =
    "set palette defined (0 '#440154', 1 '#414487', 2 '#2A788E', 3 '#22A884', 4 '#7AD151', "
    "5 '#FDE725')\n";
constexpr std::array Dashes{"1", "2", "4"};

/// Text inside a double-quoted gnuplot string, with enhanced text off.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result + '"';
}

std::string header(const std::string& title, const Axes& axes, int width, int height) {
  std::string s = fmt::format(
      "set encoding utf8\n"
      "set terminal svg noenhanced size {},{} font 'sans-serif,12'\n"
      "set title {} noenhanced\nset xlabel {} noenhanced\nset ylabel {} noenhanced\n"
      "set border 3\nset tics nomirror\nset key noenhanced\n",
      width, height, quoted(title), quoted(axes.x), quoted(axes.y));
  if (axes.log_x) s += "set logscale x\nset format x '%h'\n";
  if (axes.log_y) s += "set logscale y\nset format y '%.0e'\n";
  return s;
}

/// What gnuplot draws for a script. The script goes in through an unlinked temporary file, so that
/// neither side waits for the other.
std::string run(const std::string& script) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::tmpfile(), std::fclose);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::tmpfile(), std::fclose);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> errors(std::tmpfile(), std::fclose);
  STEADY_CHECK(IoError, in && out && errors, "gnuplot: no temporary file: {}",
               std::strerror(errno));
  std::fwrite(script.data(), 1, script.size(), in.get());
  std::rewind(in.get());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(in.get()), 0);
  posix_spawn_file_actions_adddup2(&actions, fileno(out.get()), 1);
  posix_spawn_file_actions_adddup2(&actions, fileno(errors.get()), 2);
  const std::array<const char*, 3> argv{"gnuplot", "--default-settings", nullptr};
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, "gnuplot", &actions, nullptr,
                                 const_cast<char* const*>(argv.data()), environ);
  posix_spawn_file_actions_destroy(&actions);
  STEADY_CHECK(Error, error == 0, "gnuplot could not be started ({}): apt-get install gnuplot-nox",
               std::strerror(error));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  const auto all = [](std::FILE* file) {
    std::rewind(file);
    std::string text;
    std::array<char, 4096> buffer{};
    while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file)) {
      text.append(buffer.data(), n);
    }
    return text;
  };
  STEADY_CHECK(Error, status == 0, "gnuplot: {}", all(errors.get()));
  return all(out.get());
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

std::string escaped(std::string text) {
  replace_all(text, "&", "&amp;");
  replace_all(text, "<", "&lt;");
  return text;
}

/// The <svg> element alone, scalable, black as currentColor, ids made unique for one page.
std::string inline_svg(std::string svg, const std::string& title) {
  static int number = 0;
  const std::string prefix = fmt::format("g{}_", ++number);
  svg.erase(0, svg.find("<svg"));
  const std::size_t end = svg.find('>');
  STEADY_CHECK(Error, end != std::string::npos, "gnuplot gave no SVG for '{}'", title);
  replace_all(svg, "gnuplot_plot_", prefix + "plot_");
  replace_all(svg, "gnuplot_canvas", prefix + "canvas");
  replace_all(svg, "<title>Gnuplot</title>", "<title>" + escaped(title) + "</title>");
  replace_all(svg, "gpDot", prefix + "dot");
  replace_all(svg, "gpPt", prefix + "pt");
  replace_all(svg, "textbox", prefix + "textbox");
  replace_all(svg, "greybox", prefix + "greybox");
  for (const char* black : {"'black'", "\"black\"", "'rgb(  0,   0,   0)'",
                            "\"rgb(  0,   0,   0)\"", "'#000000'", "\"#000000\""}) {
    replace_all(svg, black, "\"currentColor\"");
  }
  replace_all(svg, "stroke: black", "stroke: currentColor");
  return svg;
}

/// A few values, such as batch sizes, are read better than the powers of ten around them.
std::string tics_at_values(const std::vector<Curve>& curves) {
  std::set<double> values;
  for (const Curve& curve : curves) values.insert(curve.x.begin(), curve.x.end());
  if (values.empty() || values.size() > 10 || *values.begin() <= 0) return "";
  return fmt::format("set xtics ({:.6g})\nset xrange [{:.6g}:{:.6g}]\n", fmt::join(values, ", "),
                     *values.begin() / 1.2, *values.rbegin() * 1.2);
}

bool drawable(double value, bool logarithmic) {
  return std::isfinite(value) && (!logarithmic || value > 0);
}

}  // namespace

std::string plot_curves(const std::string& title, const Axes& axes,
                        const std::vector<Curve>& curves) {
  std::string s = header(title, axes, 520, 380);
  s += "set key below maxrows 6 samplen 2 height 0.5\n";
  std::string plots;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    s += fmt::format("$c{} << EOD\n", i);
    std::size_t drawn = 0;
    for (std::size_t k = 0; k < curves[i].x.size(); ++k) {
      if (!drawable(curves[i].x[k], axes.log_x) || !drawable(curves[i].y[k], axes.log_y)) continue;
      s += fmt::format("{:.9g} {:.9g}\n", curves[i].x[k], curves[i].y[k]);
      ++drawn;
    }
    s += "EOD\n";
    if (drawn == 0) continue;
    plots += fmt::format("{}$c{} using 1:2 with {} lw 2 pt 7 ps 0.35 dt {} lc rgb '{}' title {}",
                         plots.empty() ? "" : ", ", i,
                         axes.points || drawn < 3 ? "linespoints" : "lines",
                         Dashes[i / Colours.size() % Dashes.size()], Colours[i % Colours.size()],
                         quoted(curves[i].name));
  }
  if (axes.log_x) s += tics_at_values(curves);
  if (plots.empty()) plots = "NaN notitle";
  if (plots == "NaN notitle") s += "set xrange [1:10]\nset yrange [1:10]\n";
  return inline_svg(run(s + "plot " + plots + "\n"), title);
}

std::string plot_heat(const std::string& title, const Axes& axes,
                      const std::vector<std::string>& column_names,
                      const std::vector<std::string>& row_names,
                      const std::vector<std::vector<double>>& z) {
  std::string s = header(title, axes, 420, 320);
  s += fmt::format("{}unset key\nset cblabel 'log10'\n", Palette);
  const auto tics = [&](const char* axis, const std::vector<std::string>& names) {
    const std::size_t step = std::max<std::size_t>(1, (names.size() + 7) / 8);
    std::string text;
    for (std::size_t i = 0; i < names.size(); i += step) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", quoted(names[i]), i);
    }
    s += fmt::format("set {}tics ({})\nset {}range [-0.5:{}]\n", axis, text, axis,
                     static_cast<double>(names.size()) - 0.5);
  };
  tics("x", column_names);
  tics("y", row_names);
  s += "$z << EOD\n";
  for (std::size_t row = 0; row < z.size(); ++row) {
    for (std::size_t column = 0; column < z[row].size(); ++column) {
      if (!drawable(z[row][column], true)) continue;
      s += fmt::format("{} {} {:.6g}\n", column, row, std::log10(z[row][column]));
    }
  }
  s += "EOD\nset style fill solid noborder\n"
       "plot $z using 1:2:($1-0.5):($1+0.5):($2-0.5):($2+0.5):3 with boxxyerror lc palette\n";
  return inline_svg(run(s), title);
}

std::string plot_map(const std::string& title, const Axes& axes,
                     const std::vector<std::string>& rows, const std::vector<MapCell>& cells) {
  const int height = 130 + 26 * static_cast<int>(rows.size());
  std::string s = header(title, axes, 520, height);
  s += fmt::format("{}set palette negative\nset cblabel 'final loss'\nunset key\nunset ylabel\n",
                   Palette);
  std::string tics;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    tics += fmt::format("{}{} {}", i == 0 ? "" : ", ", quoted(rows[i]), rows.size() - 1 - i);
  }
  s += fmt::format("set ytics ({})\nset yrange [-0.5:{}]\n", tics,
                   static_cast<double>(rows.size()) - 0.5);
  double low = INFINITY;
  double high = 0;
  std::array<std::string, 3> data;  // good, stalled, diverged
  for (const MapCell& cell : cells) {
    low = std::min(low, cell.x);
    high = std::max(high, cell.x);
    data[cell.good       ? 0U
         : cell.diverged ? 2U
                         : 1U] +=
        fmt::format("{:.6g} {} {:.6g}\n", cell.x, rows.size() - 1 - cell.row, cell.value);
  }
  if (axes.log_x) {
    s += fmt::format("set xrange [{:.6g}:{:.6g}]\n", low / 1.7, high * 1.7);
  } else {
    s += "set offsets graph 0.08, graph 0.08, 0, 0\n";
  }
  for (std::size_t i = 0; i < data.size(); ++i)
    s += fmt::format("$m{} << EOD\n{}EOD\n", i, data[i]);
  std::string plots;
  const auto layer = [&](std::size_t i, const char* style) {
    if (!data[i].empty()) plots += fmt::format("{}$m{} {}", plots.empty() ? "" : ", ", i, style);
  };
  layer(0, "using 1:2:3 with points pt 5 ps 1.6 lc palette");
  layer(1, "using 1:2 with points pt 4 ps 1.4 lw 2 lc rgb '#8A8A8A'");
  layer(2, "using 1:2 with points pt 2 ps 1.4 lw 2 lc rgb '#D55E00'");
  return inline_svg(run(s + "plot " + plots + "\n"), title);
}

std::string standalone_svg(const std::string& svg) {
  const std::size_t end = svg.find('>') + 1;
  return "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n" + svg.substr(0, end) +
         "<style>svg{color:#1b1b1b;background:#fff}"
         "@media (prefers-color-scheme: dark){svg{color:#e8e8e8;background:#161616}}</style>" +
         svg.substr(end);
}

}  // namespace steady::examples
