#!/usr/bin/env python3
"""Draws docs/chart.svg: what the model's output loses against bytes per row.

The figures are those of the first table under "Output KL on the small n-gram language model" in docs/results.md.
Needs the standard library alone.

    python3 docs/chart.py            # draw it
    python3 docs/chart.py --check    # fail if the chart is not what would be drawn
"""

import math
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS, CHART = HERE / "results.md", HERE / "chart.svg"
HEADING = "## Output KL on the small n-gram language model"

# Rows of the table that a logarithmic axis has no place for: no table at all, and the source itself.
NOT_DRAWN = {"zero", "fp8", "source"}

# Each method belongs to the first series whose pattern matches: class, pattern, legend.
SERIES = [
    ("cp", r"cp-[\d.]+-e0-projection", "CP at effort 0, 1 to 4 bits"),
    ("rtn", r"rtn-\d-asym-range", "round to nearest, min-max"),
    ("other-cp", r"cp-.*", "CP, other scales, efforts, rates"),
    ("other-rtn", r"rtn-.*", "round to nearest, other ranges"),
    ("lloyd", r"lloyd-max-.*", "Lloyd-Max"),
    ("hyb", r"hyb-.*", "the paper's trellis"),
    ("qtip", r"qtip-.*", "QTIP, one scale per table"),
    ("fp4", r"(mx|nv)fp4(-search)?", "MXFP4, NVFP4"),
]

# Points with a label: text, offset from the point, anchor.
LABELS = {
    "cp-1-e0-projection": ("1 bit", 0, 20, "middle"),
    "cp-1.5-e0-projection": ("1.5 bits", -8, 16, "end"),
    "cp-2-e0-projection": ("2 bits", -10, 8, "end"),
    "cp-2.5-e0-projection": ("2.5 bits", -8, 14, "end"),
    "cp-3-e0-projection": ("3 bits", -8, 14, "end"),
    "cp-4-e0-projection": ("4 bits", -9, 8, "end"),
    "rtn-2-asym-range": ("2 bits", 9, 4, "start"),
    "rtn-3-asym-range": ("3 bits", 9, 0, "start"),
    "rtn-4-asym-range": ("4 bits", 2, 20, "start"),
    "cp-2-e0-projection-by-frequency": ("rates by frequency", -9, 10, "end"),
    "mxfp4": ("MXFP4", 9, 4, "start"),
    "nvfp4": ("NVFP4", 9, 4, "start"),
}

WIDTH, HEIGHT = 860, 430
LEFT, RIGHT, TOP, BOTTOM = 68, 606, 52, 376
BYTES, KL = (25, 160), (0.05, 12)

STYLE = """
  svg { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
  .paper { fill: #ffffff } text { fill: #24292f } .title { font-size: 15px; font-weight: 600 }
  .small { font-size: 11.5px } .grid { stroke: #d8dee4; stroke-width: 1 } .axis { stroke: #57606a; stroke-width: 1 }
  .line { fill: none; stroke-width: 2.5 } .cp { fill: #0969da; stroke: #0969da } .rtn { fill: #bc4c00; stroke: #bc4c00 }
  .other-cp { fill: none; stroke: #0969da; stroke-width: 1.5 } .other-rtn { fill: none; stroke: #bc4c00; stroke-width: 1.5 }
  .lloyd { fill: #57606a; stroke: #57606a } .hyb { fill: #8250df; stroke: #8250df } .qtip { fill: #bf3989; stroke: #bf3989 }
  .fp4 { fill: #1a7f37; stroke: #1a7f37 } .line { fill: none } text.cp, text.rtn, text.fp4 { stroke: none }
  text.other-cp { fill: #0969da; stroke: none }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117 } text { fill: #e6edf3 } .grid { stroke: #30363d } .axis { stroke: #8b949e }
    .cp { fill: #58a6ff; stroke: #58a6ff } .rtn { fill: #f0883e; stroke: #f0883e }
    .other-cp { stroke: #58a6ff } .other-rtn { stroke: #f0883e } .lloyd { fill: #8b949e; stroke: #8b949e }
    .hyb { fill: #bc8cff; stroke: #bc8cff } .qtip { fill: #f778ba; stroke: #f778ba } .fp4 { fill: #3fb950; stroke: #3fb950 }
    .line { fill: none } text.other-cp { fill: #58a6ff }
  }
"""


def figures(markdown):
    """(method, bytes per row, KL) of each row of the table."""
    _, found, section = markdown.partition(HEADING)
    if not found:
        sys.exit(f"{RESULTS}: no heading {HEADING!r}")
    lines = iter(section.splitlines())
    header = next((line for line in lines if line.startswith("| method |")), "")
    if not header.startswith("| method | bytes per row | relative MSE | KL, 1e-3 nats per token |"):
        sys.exit(f"{RESULTS}: the table's columns are {header!r}, expected method, bytes per row, relative MSE, KL")
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        method, size, _, kl, *_ = (cell.strip() for cell in line.strip("|").split("|"))
        rows.append((method, float(size), float(kl.split("±")[0])))
    return [row for row in rows if row[0] not in NOT_DRAWN]


def series_of(method):
    for name, pattern, _ in SERIES:
        if re.fullmatch(pattern, method):
            return name
    sys.exit(f"{RESULTS}: {method} belongs to no series of {Path(__file__).name}")


def x(size):
    return LEFT + (size - BYTES[0]) / (BYTES[1] - BYTES[0]) * (RIGHT - LEFT)


def y(kl):
    low, high = map(math.log, KL)
    return BOTTOM - (math.log(kl) - low) / (high - low) * (BOTTOM - TOP)


def mark(name, at_x, at_y):
    """A series has its shape as well as its colour."""
    if name == "cp":
        return f'<circle class="{name}" cx="{at_x:.1f}" cy="{at_y:.1f}" r="5"/>'
    if name == "other-cp":
        return f'<circle class="{name}" cx="{at_x:.1f}" cy="{at_y:.1f}" r="3.5"/>'
    shapes = {
        "rtn": "M-4.5-4.5H4.5V4.5H-4.5Z",
        "other-rtn": "M-3.5-3.5H3.5V3.5H-3.5Z",
        "lloyd": "M-4 0H4M0-4V4",
        "hyb": "M0-4.5L4.5 3.5H-4.5Z",
        "qtip": "M0-5.5L5.5 0L0 5.5L-5.5 0Z",
        "fp4": "M-4.5-3.5H4.5L0 4.5Z",
    }
    return f'<path class="{name}" d="{shapes[name]}" transform="translate({at_x:.1f} {at_y:.1f})"/>'


def text(at_x, at_y, words, kind="", anchor="start"):
    return f'<text class="{kind}" x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}">{words}</text>'


def draw(rows):
    for method, size, kl in rows:
        if not (BYTES[0] <= size <= BYTES[1] and KL[0] <= kl <= KL[1]):
            sys.exit(f"{RESULTS}: {method} lies outside the chart, with {size} bytes and a KL of {kl}")
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title">',
        '<title id="title">What the output of a small n-gram language model loses, against bytes per row</title>',
        "<!-- Drawn by docs/chart.py from docs/results.md. -->",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        text(LEFT, 24, "What the model's output loses: KL, 1e-3 nats per token", "title"),
        text(LEFT, 41, "rows of 256 values; the source is FP8 of 264 bytes; lower and further left is better", "small"),
    ]
    for kl in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10):
        svg.append(f'<path class="grid" d="M{LEFT} {y(kl):.1f}H{RIGHT}"/>')
        svg.append(text(LEFT - 8, y(kl) + 4, f"{kl:g}", "small", "end"))
    for size in range(40, 161, 20):
        svg.append(f'<path class="grid" d="M{x(size):.1f} {TOP}V{BOTTOM}"/>')
        svg.append(text(x(size), BOTTOM + 18, f"{size}", "small", "middle"))
    svg.append(f'<path class="axis" d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none"/>')
    svg.append(text((LEFT + RIGHT) / 2, BOTTOM + 38, "bytes per row", "small", "middle"))

    points = [(series_of(method), method, x(size), y(kl)) for method, size, kl in rows]
    # What matters most is drawn last.
    for name, _, _ in reversed(SERIES):
        own = [point for point in points if point[0] == name]
        if name in ("cp", "rtn"):
            path = "L".join(f"{at_x:.1f} {at_y:.1f}" for _, _, at_x, at_y in sorted(own, key=lambda point: point[2]))
            svg.append(f'<path class="{name} line" d="M{path}"/>')
        svg.extend(mark(name, at_x, at_y) for _, _, at_x, at_y in own)
    for name, method, at_x, at_y in points:
        if method in LABELS:
            words, right, down, anchor = LABELS[method]
            svg.append(text(at_x + right, at_y + down, words, f"{name} small", anchor))
    for line, (name, _, legend) in enumerate(SERIES):
        at_y = TOP + 22 + 24 * line
        svg.append(mark(name, RIGHT + 24, at_y - 4))
        svg.append(text(RIGHT + 38, at_y, legend, "small"))
    svg.append("</svg>")
    return "\n".join(svg) + "\n"


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    svg = draw(figures(RESULTS.read_text(encoding="utf-8")))
    if not sys.argv[1:]:
        CHART.write_text(svg, encoding="utf-8")
    elif not CHART.exists() or CHART.read_text(encoding="utf-8") != svg:
        sys.exit(f"{CHART} is not what {RESULTS} says: run python3 {Path(__file__).name}")


if __name__ == "__main__":
    main()
