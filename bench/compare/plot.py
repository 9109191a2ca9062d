"""Time over size as an SVG: a row of panels per collective, a panel per number of processes, both axes logarithmic."""
import math
from xml.sax.saxutils import escape

from collectives import COLLECTIVES
from verdict import floor, named

COLOURS = {"Tutti private": "#0b6e4f", "Tutti mapped": "#5cb85c", "Open MPI": "#c0392b", "newest Open MPI": "#e6948b",
           "MPICH": "#e67e22", "newest MPICH": "#f5c08a", "Intel MPI": "#2471a3", "Gloo": "#7d3c98",
           "plain copy": "#888888", "plain zero-copy": "#bbbbbb"}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 460, 360, 84, 40, 48, 30


def svg(collectives, machine):
    """Of Results."""
    counts = sorted({row["ranks"] for results in collectives for row in results.rows})
    across, down = LEFT + WIDTH + GAP, TOP + HEIGHT + BOTTOM
    panels = "".join(f'<g transform="translate({column * across} {line * down})">{panel(results, machine, ranks)}</g>'
                     for line, results in enumerate(collectives) for column, ranks in enumerate(counts))
    width, height = len(counts) * across, len(collectives) * down
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
            f'font-size="12"><rect width="100%" height="100%" fill="white"/>{panels}</svg>\n')


def text(x, y, words, anchor="middle", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{escape(words)}</text>'


def panel(results, machine, ranks):
    rows = [row for row in results.rows if row["ranks"] == ranks and row["library"] in COLOURS]
    sizes = sorted({row["bytes"] for row in rows})
    limits = [(size, floor(machine, results.op, ranks, size)) for size in sizes]
    limits = [(size, us) for size, us in limits if us is not None]
    low = math.floor(math.log10(min([row["us"] for row in rows] + [us for _, us in limits])))
    high = math.ceil(math.log10(max(row["us"] for row in rows)))
    span = math.log2(sizes[-1] / sizes[0]) or 1

    def x(size):
        return LEFT + WIDTH * math.log2(size / sizes[0]) / span

    def y(us):
        return TOP + HEIGHT * (high - math.log10(us)) / max(1, high - low)

    title = f"{results.title}, float32{' sum' if COLLECTIVES[results.op].sums else ''}, {ranks} processes"
    parts = [text(LEFT + WIDTH / 2, TOP - 16, title, extra='font-size="14"')]
    for power in range(low, high + 1):
        parts.append(f'<line x1="{x(sizes[0]):.1f}" x2="{x(sizes[-1]):.1f}" y1="{y(10 ** power):.1f}" '
                     f'y2="{y(10 ** power):.1f}" stroke="#ddd"/>')
        parts.append(text(LEFT - 6, y(10 ** power) + 4, f"{10 ** power:g} us", "end"))
    parts += [text(x(size), TOP + HEIGHT + 18 + 14 * (index % 2), named(size)) for index, size in enumerate(sizes)]
    for index, (library, colour) in enumerate(COLOURS.items()):
        points = sorted((size, row["us"]) for (r, size, name), row in results.best.items()
                        if (r, name) == (ranks, library))
        if not points:
            continue
        path = " ".join(f"{x(size):.1f},{y(us):.1f}" for size, us in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(size):.1f}" cy="{y(us):.1f}" r="3" fill="{colour}"/>' for size, us in points]
        parts.append(text(LEFT + 10, TOP + 16 + 16 * index, library, "start", f'fill="{colour}"'))
    if limits:
        path = " ".join(f"{x(size):.1f},{y(us):.1f}" for size, us in limits)
        parts.append(f'<polyline points="{path}" fill="none" stroke="#555" stroke-dasharray="5 4"/>')
        parts.append(text(LEFT + 10, TOP + 16 + 16 * len(COLOURS), "floor: each byte once", "start",
                          'fill="#555"'))
    return "".join(parts)
