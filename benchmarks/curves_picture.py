"""Draws the curves of benchmarks/curves.py as SVG: a panel for each thing that grows. Knows nothing of servers."""

import math
from dataclasses import dataclass
from html import escape
from typing import Final

Point = tuple[int, float]  # a size, and what a command costs there
COLOURS: Final = {"put": "#0b6e99", "reserve": "#c2571a", "delete": "#3d7a3a"}
PANEL_WIDTH: Final = 430
PANEL_HEIGHT: Final = 290
COLUMNS: Final = 2
LEFT, RIGHT, TOP, BOTTOM = 48, 36, 34, 40  # around the lines of a panel
LEGEND_HEIGHT: Final = 44
TICKS_MOST: Final = 6
DASHES: Final = ' stroke-dasharray="5 4" stroke-opacity="0.75"'


@dataclass
class Panel:
    """One picture in the picture: series by server and kind of command."""

    title: str
    series: dict[tuple[str, str], list[Point]]


def picture(panels: list[Panel], ours: str) -> str:
    """The whole file. Lines of the server `ours` are solid, those of others dashed."""
    rows = -(-len(panels) // COLUMNS)
    width, height = COLUMNS * PANEL_WIDTH, rows * PANEL_HEIGHT + LEGEND_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12" fill="#222">',
        "<title>CPU time per command against what is stored and connected</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *_legend(panels, ours),
    ]
    for number, panel in enumerate(panels):
        x = number % COLUMNS * PANEL_WIDTH
        y = number // COLUMNS * PANEL_HEIGHT + LEGEND_HEIGHT
        parts += [f'<g transform="translate({x} {y})">', *_panel(panel, ours), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(panels: list[Panel], ours: str) -> list[str]:
    names = sorted({name for panel in panels for name, _ in panel.series}, key=lambda name: name != ours)
    parts, x = [], LEFT
    for name in names:
        dashes = "" if name == ours else DASHES
        parts.append(f'<path d="M{x} 22h28" stroke="#222" stroke-width="2"{dashes}/>')
        parts.append(f'<text x="{x + 34}" y="26">{escape(name)}</text>')
        x += 180
    for step, colour in COLOURS.items():
        parts.append(f'<rect x="{x}" y="16" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="26">{step}</text>')
        x += 90
    return parts


def _panel(panel: Panel, ours: str) -> list[str]:
    points = [point for series in panel.series.values() for point in series]
    if not points:
        return []
    low, high = (math.log10(bound([size for size, _ in points])) for bound in (min, max))
    top, step = _scale(max(cost for _, cost in points))

    def x_of(size: int) -> float:
        share = (math.log10(size) - low) / (high - low) if high > low else 0.5
        return LEFT + share * (PANEL_WIDTH - LEFT - RIGHT)

    def y_of(cost: float) -> float:
        return TOP + (1 - cost / top) * (PANEL_HEIGHT - TOP - BOTTOM)

    parts = [f'<text x="{LEFT}" y="20" font-weight="bold">CPU us per command, by {escape(panel.title)}</text>']
    for tick in range(round(top / step) + 1):
        y = y_of(tick * step)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{PANEL_WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick * step:g}</text>')
    for size in sorted({size for size, _ in points}):
        y = PANEL_HEIGHT - BOTTOM + 18
        parts.append(f'<text x="{x_of(size):.1f}" y="{y}" text-anchor="middle">{size:,}</text>')
    for (name, kind), series in panel.series.items():
        line = "L".join(f"{x_of(size):.1f} {y_of(cost):.1f}" for size, cost in series)
        dashes = "" if name == ours else DASHES
        parts.append(f'<path d="M{line}" fill="none" stroke="{COLOURS[kind]}" stroke-width="2"{dashes}/>')
        for size, cost in series:
            parts.append(f'<circle cx="{x_of(size):.1f}" cy="{y_of(cost):.1f}" r="2.5" fill="{COLOURS[kind]}"/>')
    return parts


def _scale(highest: float) -> tuple[float, float]:
    """The top of an axis from 0 that holds `highest`, and the distance of its ticks: 1, 2 or 5 times a power of ten."""
    step = 10.0 ** math.floor(math.log10(highest / TICKS_MOST))
    for factor in (1, 2, 5, 10):
        if step * factor * TICKS_MOST >= highest:
            return math.ceil(highest / (step * factor)) * step * factor, step * factor
    raise AssertionError("ten times is always enough")
