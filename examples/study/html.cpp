#include "examples/study/html.hpp"

#include <fmt/format.h>

#include <cmath>

namespace steady::examples {
namespace {

constexpr const char* Style = R"css(
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --line: #c9c9c9; --soft: #5a5a5a;
        --good: #0a7a4d; --bad: #b3400e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #161616; --line: #444; --soft: #a8a8a8; --good: #45c48f;
          --bad: #ff8a50; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 1rem; color: var(--ink); background: var(--paper);
       font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.3rem 0.7rem; border-bottom: 1px solid var(--line);
         vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.words { min-width: 16rem; }
.good { color: var(--good); } .bad { color: var(--bad); }
.figures { display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); }
figure { margin: 0; } figure svg { width: 100%; height: auto; }
figcaption { font-size: 0.85rem; color: var(--soft); overflow-wrap: anywhere; }
code { font-size: 0.85em; overflow-wrap: anywhere; }
dt { font-weight: 600; margin-top: 0.6rem; } dd { margin-left: 0; }
)css";

std::string escape(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string number(double value, const char* format) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "-";
}

std::string verdict_rows(const std::vector<Verdict>& verdicts) {
  std::string rows;
  for (const Verdict& v : verdicts) {
    const bool bad = v.trained.starts_with("none") ||
                     v.words.find("explode") != std::string::npos ||
                     v.words.find("vanish") != std::string::npos ||
                     v.words.starts_with("diverged") || v.words.starts_with("learns nothing");
    const std::string lr = std::isfinite(v.lr_tried) && std::isnan(v.largest_lr)
                               ? "none"
                               : number(v.largest_lr, "{:.2g}");
    rows += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td class=number>{}</td><td class=number>{}</td>"
        "<td class=number>{}</td><td class=\"words {}\">{}</td></tr>\n",
        escape(v.model), escape(v.choice), escape(v.trained), number(v.final_loss, "{:.3f}"),
        number(v.first_to_last, "{:.3g}"), lr, bad ? "bad" : "good", escape(v.words));
  }
  return rows;
}

std::string section_html(const Section& section, const std::string& command) {
  std::string figures;
  for (const Figure& f : section.figures) {
    figures += fmt::format("<figure id=\"{}\">{}<figcaption>{}</figcaption></figure>\n",
                           escape(f.id), f.svg, escape(f.caption));
  }
  return fmt::format(
      "<section><h2>{}</h2>\n<p>{}</p>\n<div class=figures>\n{}</div>\n"
      "<p><small>Remade by <code>{} --only {}</code>; the numbers lie beside the pictures as "
      "CSV.</small></p></section>\n",
      escape(section.question.title), escape(section.question.text), figures, escape(command),
      escape(section.question.id));
}

std::string facts(const StudyResults& results) {
  for (const Answer& answer : results.answers) {
    for (const Result& r : answer.results) {
      std::string text;
      for (const auto& [name, value] : r.run.facts) {
        text += fmt::format("<dt>{}</dt><dd>{}</dd>", escape(name), escape(hdf5::to_string(value)));
      }
      return text;
    }
  }
  return "";
}

std::string sources(const StudyResults& results) {
  std::vector<std::string> seen;
  std::string text;
  for (const Answer& answer : results.answers) {
    for (const Result& r : answer.results) {
      const std::string source = r.text("data");
      if (source.empty() || std::find(seen.begin(), seen.end(), source) != seen.end()) continue;
      seen.push_back(source);
      text += "<li>" + escape(source) + "</li>";
    }
  }
  return text;
}

}  // namespace

std::string html_report(const StudyResults& results, const std::vector<Verdict>& verdicts,
                        const std::vector<Section>& sections, const std::string& study_command,
                        const std::string& report_command) {
  std::string body;
  for (const Section& section : sections) body += section_html(section, report_command);
  std::string definitions;
  for (const auto& [name, text] : measure_definitions()) {
    definitions += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(text));
  }
  std::string missing;
  if (results.missing > 0) {
    missing = fmt::format(
        "<p class=bad>{} cells of the plan have no log yet; this report shows "
        "the others.</p>\n",
        results.missing);
  }
  return fmt::format(
      "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
      "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
      "<link rel=icon href=\"data:,\">\n<title>Gradient stability by norm</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<h1>How each norm affects gradient stability</h1>\n"
      "<p>Plan <b>{}</b>, made by <code>{}</code>.</p>\n{}"
      "<h2>Verdicts</h2>\n<p>Deepest network tried for each choice; terms are defined at the "
      "end.</p>\n<div class=wide><table>\n<tr><th>model</th><th>norm</th><th>trained at depth</th>"
      "<th>final loss</th><th>gradient flow first/last</th><th>largest stable lr</th><th>what it "
      "means"
      "</th></tr>\n{}</table></div>\n{}<h2>Definitions</h2>\n<dl>\n{}</dl>\n"
      "<h2>Data</h2><ul>{}</ul>\n<h2>What computed</h2>\n<dl>{}</dl>\n</body>\n</html>\n",
      Style, escape(results.plan.name), escape(study_command), missing, verdict_rows(verdicts),
      body, definitions, sources(results), facts(results));
}

}  // namespace steady::examples
