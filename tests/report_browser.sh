#!/usr/bin/env bash
# Opens a report in headless Chromium: no console message, no request that leaves the file, every
# figure drawn, nothing wider than a phone. Exit code 77: no Chromium here.
set -euo pipefail

if [ "${1:-}" = --help ]; then
  cat <<'TEXT'
tests/report_browser.sh [BIN [REPORT [SHOTS]]]

BIN: directory of the programs (build/bin). REPORT: the report to open; without one, that of a study
of seconds. SHOTS: directory for the screenshots report-1280.png and report-390.png.
TEXT
  exit 0
fi
bin=${1:-build/bin}
report=${2:-}
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[ -n "$browser" ] || { echo "skipped: no chromium here (apt-get install chromium)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shots=${3:-$work}
mkdir -p "$shots"

fail() {
  echo "report_browser.sh: $*" >&2
  exit 1
}

make_report() {
  cat >"$work/plan.json" <<'JSON'
{"name": "browser", "questions": [
  {"id": "depth", "title": "Depth <script>alert(1)</script>", "figure": "profile",
   "base": {"model": "mlp", "width": 8, "batch": 8, "steps": 12},
   "vary": {"norm": ["none", "batch"], "depth": [2, 4]}},
  {"id": "rates", "title": "Rates", "figure": "stability",
   "base": {"model": "mlp", "width": 8, "batch": 8, "steps": 8, "depth": 2},
   "vary": {"norm": ["none", "batch"], "lr": [0.1, 1e6]}},
  {"id": "losses", "title": "Losses", "figure": "loss",
   "base": {"model": "mlp", "width": 8, "batch": 8, "steps": 12, "depth": 2},
   "vary": {"norm": ["none", "batch"]}},
  {"id": "sizes", "title": "Sizes", "figure": "batch",
   "base": {"model": "mlp", "width": 8, "steps": 8, "depth": 2}, "vary": {"batch": [2, 8]}},
  {"id": "growth", "title": "Growth", "figure": "growth",
   "base": {"model": "mlp", "width": 8, "batch": 8, "steps": 0, "depth": 14},
   "vary": {"norm": ["none", "batch"]}}
]}
JSON
  "$bin/stability_study" --plan "$work/plan.json" --out "$work/study" --data "$work" \
    --progress off >/dev/null
  "$bin/report" --out "$work/study" >/dev/null
  report=$work/study/report.html
}

# browse PAGE OPTION...: standard output is Chromium's; its messages go to $work/messages and its
# requests to $work/net.json. No name resolves.
browse() {
  local page=$1
  shift
  "$browser" --headless=new --no-sandbox --disable-gpu --no-first-run --hide-scrollbars \
    --disable-background-networking --disable-component-update --disable-sync \
    --user-data-dir="$work/profile" --host-resolver-rules="MAP * ~NOTFOUND" \
    --enable-logging=stderr --log-net-log="$work/net.json" "$@" \
    "file://$page" 2>"$work/messages"
}
console_messages() { grep -o 'CONSOLE.*' "$work/messages" || true; }
# 101845102 marks what a page asks for; Chromium's own requests have other marks.
requests() {
  grep -oE '"traffic_annotation":101845102,"url":"[^"]*"' "$work/net.json" |
    grep -o 'url.*' | grep -v '"data:' || true
}

# Both checks must be able to fail.
echo '<img src="http://example.invalid/a.png"><script>console.error("seeded")</script>' \
  >"$work/faulty.html"
browse "$work/faulty.html" --dump-dom >/dev/null
[[ $(console_messages) == *seeded* ]] || fail "a console error is not seen: $(tail -3 "$work/messages")"
[[ $(requests) == *example.invalid* ]] || fail "a request is not seen"

[ -n "$report" ] || make_report
report=$(realpath "$report")

# A copy that measures itself, in frames of both widths.
cp "$report" "$work/measured.html"
cat >>"$work/measured.html" <<'HTML'
<script>
addEventListener("load", () => {
  const says = [], root = document.documentElement, figures = document.querySelectorAll("figure");
  for (const figure of figures) {
    const svg = figure.querySelector("svg"), box = svg && svg.getBBox();
    const shown = svg && svg.getBoundingClientRect();
    if (!svg || box.width < 50 || box.height < 50 || shown.width < 50 || shown.height < 50) {
      says.push("fault: figure " + figure.id + " is empty");
    }
    if (!figure.querySelector("figcaption").textContent.trim()) {
      says.push("fault: figure " + figure.id + " has no caption");
    }
  }
  if (!figures.length) says.push("fault: no figure");
  for (const element of document.querySelectorAll("body *")) {
    if (root.scrollWidth <= innerWidth) break;
    if (element.closest(".wide, svg") || element.getBoundingClientRect().right <= innerWidth) continue;
    says.push("fault: wider than " + innerWidth + ": " + element.outerHTML.slice(0, 80));
  }
  says.push("width " + innerWidth + " needs " + root.scrollWidth + ", " + figures.length + " figures, height " + root.scrollHeight);
  if (root.scrollWidth > innerWidth) says.push("fault: scrolls sideways at width " + innerWidth);
  parent.postMessage(says.join("\n"), "*");
});
</script>
HTML
cat >"$work/frames.html" <<'HTML'
<pre></pre><script>onmessage = e => document.querySelector("pre").textContent += e.data + "\n"</script>
<iframe src=measured.html style="width:1280px;height:800px;border:0"></iframe>
<iframe src=measured.html style="width:390px;height:800px;border:0"></iframe>
HTML
browse "$work/frames.html" --dump-dom >"$work/dom.html"
sed -nE 's/^(<.*>)?(fault|width)/\2/p' "$work/dom.html" >"$work/says"
cat "$work/says"
! grep -q fault "$work/says" || fail "the layout has faults"
for width in 1280 390; do
  grep -q "width $width " "$work/says" || fail "no measurements at $width px"
done

height() { sed -n "s/.*width $1 .*height //p" "$work/says"; }
browse "$report" --window-size="1280,$(height 1280)" --screenshot="$shots/report-1280.png" >/dev/null
[ -z "$(console_messages)" ] || fail "the console says: $(console_messages)"
[ -z "$(requests)" ] || fail "the report asks for $(requests)"
cat >"$work/phone.html" <<HTML
<body style="margin:0"><iframe src="file://$report"
 style="width:390px;height:$(height 390)px;border:0"></iframe>
HTML
browse "$work/phone.html" --window-size="500,$(height 390)" --screenshot="$shots/report-390.png" \
  >/dev/null
for width in 1280 390; do
  [ -s "$shots/report-$width.png" ] || fail "no screenshot at $width px"
done
echo "report: drawn at 1280 and 390 px, no console message, no request"
