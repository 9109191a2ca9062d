"""Points as an HTML page with SVG plots; no scripts, nothing from outside."""
import html
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 440, 250, 70, 24, 30, 34
# Told apart also by who sees fewer colours (M. Okabe, K. Ito: Color Universal Design, 2008).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#a6761d"]
STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:1400px;margin:2em auto;padding:0 1.5em}
h1{font-size:1.5em;margin-bottom:.2em}
h2{font-size:1.15em;margin:2.2em 0 .4em;border-top:1px solid #ddd;padding-top:1em}
p.sub{color:#666;margin-top:0}.plots{display:flex;flex-wrap:wrap;gap:12px}svg{font:11px system-ui,sans-serif}
.key{display:flex;flex-wrap:wrap;gap:.2em 1.4em;margin:.3em 0 .6em}.key i{display:inline-block;width:1.6em;height:0;
border-top:3px solid;vertical-align:middle;margin-right:.4em}.key i.dash{border-top-style:dashed}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.6em 0}
td,th{padding:.15em .7em;text-align:right;
border-bottom:1px solid #eee;font-weight:normal}th{color:#666;border-bottom:1px solid #bbb}summary{cursor:pointer;
color:#0072b2}dl{display:grid;grid-template-columns:auto 1fr;gap:.1em 1em}dt{color:#666}dd{margin:0;
overflow-wrap:anywhere}.bad{color:#b00020;font-weight:600}"""


def page(runs, date):
    subjects = {}
    for run in runs:
        for point in run.points:
            subjects.setdefault(point.subject, []).append(point)
    count = sum(len(run.points) for run in runs)
    sections = "".join(section(subject, points) for subject, points in subjects.items())
    problems = "".join(f'<p class="bad">{escape(run.name)}: {escape(text)}</p>'
                       for run in runs for text in run.problems)
    sources = "".join(source(run) for run in runs)
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Collectives, measured</title>'
            f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
            f'<h1>Collectives, measured</h1><p class="sub">{count} measurements from {len(runs)} '
            f'file{"s" * (len(runs) != 1)}; made {date}</p>{problems}{sections}'
            f'<h2>Where the figures come from</h2>{sources}</body></html>\n')


def section(subject, points):
    names = list(dict.fromkeys(point.series for point in points))
    series = {name: sorted((p for p in points if p.series == name), key=lambda p: p.size) for name in names}
    colours = colours_of(names)
    charts = [chart("time per operation, microseconds", series, colours, lambda p: p.us, logarithmic=True),
              chart("bus bandwidth, GB/s", series, colours, lambda p: p.bus)]
    ratios = ratios_of(series)
    if ratios:
        charts.append(chart("time over Tutti's best: above 1, Tutti is faster", ratios, colours, lambda p: p[1],
                            size=lambda p: p[0], logarithmic=True, line=1))
    key = "".join(f'<span><i style="border-color:{colours[n][0]}"{" class=dash" * bool(colours[n][1])}></i>'
                  f'{escape(n)}</span>' for n in names)
    return (f'<h2>{escape(subject)}</h2><div class="key">{key}</div><div class="plots">{"".join(charts)}</div>'
            f'<details><summary>figures</summary>{table(series, ratios)}</details>')


def head(name):
    return name.replace(" in place", "")


def colours_of(names):
    """(colour, dashes): a colour for each who; long dashes for in place, short ones when the colours begin anew."""
    heads = list(dict.fromkeys(head(name) for name in names))
    found = {}
    for name in names:
        index = heads.index(head(name))
        dashes = "7 4" if " in place" in name else "2 3" if index >= len(COLOURS) else ""
        found[name] = (COLOURS[index % len(COLOURS)], dashes)
    return found


def ratios_of(series):
    """By name: (size, its time over that of Tutti, which measured under the same circumstances)."""
    ours = [name for name in series if name.startswith("Tutti")]
    ratios = {}
    for name, points in series.items():
        if name in ours:
            continue
        like = [o for o in ours if (" in place" in o) == (" in place" in name)]
        best = {}
        for other in like:
            for point in series[other]:
                best[point.size] = min(best.get(point.size, math.inf), point.us)
        pairs = [(p.size, p.us / best[p.size]) for p in points if best.get(p.size)]
        if pairs:
            ratios[name] = pairs
    return ratios


def chart(title, series, colours, value, size=lambda p: p.size, logarithmic=False, line=None):
    points = [(size(p), value(p)) for ps in series.values() for p in ps if value(p) > 0]
    if not points:
        return ""
    sizes = sorted({s for s, _ in points if s > 0}) or [1]
    ticks = ticks_of([v for _, v in points] + ([line] if line else []), logarithmic)
    scale = math.log10 if logarithmic else float
    low, high = scale(ticks[0]), scale(ticks[-1])
    span = math.log2(sizes[-1] / sizes[0]) or 1
    inner, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(s):
        return LEFT + inner * (math.log2(max(s, 1) / sizes[0]) / span if len(sizes) > 1 else .5)

    def y(v):
        return TOP + tall * (high - scale(v)) / ((high - low) or 1)

    parts = [f'<text x="{LEFT}" y="16" font-size="13">{escape(title)}</text>']
    for tick in ticks:
        strong = tick == line
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" '
                     f'stroke="{"#555" if strong else "#e4e4e4"}"/>'
                     f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end" fill="#555">{number(tick)}</text>')
    for s in thinned(sizes, x):
        parts.append(f'<text x="{x(s):.1f}" y="{HEIGHT - 12}" text-anchor="middle" fill="#555">{named(s)}</text>')
    for name, ps in series.items():
        colour, dashes = colours[name]
        drawn = [(p, x(size(p)), y(value(p))) for p in ps if value(p) > 0]
        path = " ".join(f"{a:.1f},{b:.1f}" for _, a, b in drawn)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"'
                     f'{f" stroke-dasharray={dashes!r}" if dashes else ""}/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.6" fill="{colour}"><title>{escape(name)}, {named(size(p))}: '
                  f'{number(value(p))}</title></circle>' for p, a, b in drawn]
    return (f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(title)}">{"".join(parts)}</svg>')


def ticks_of(values, logarithmic):
    """From the last one below all values to the first one above, four to eight of them where that can be."""
    low, high = min(values), max(values)
    if not logarithmic:
        step = 10 ** math.floor(math.log10(high))
        while high / step < 4:
            step /= 2
        return [step * i for i in range(math.ceil(high / step) + 1)]
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    best = []
    for steps in ([1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9]):
        every = [s * 10.0 ** d for d in decades for s in steps]
        first = max(t for t in every if t <= low * 1.0001)
        last = min(t for t in every if t >= high * .9999)
        ticks = [t for t in every if first <= t <= last]
        if not best or len(ticks) <= 9:
            best = ticks
        if len(best) >= 4:
            break
    return best if len(best) > 1 else [best[0], best[0] * 10]


def thinned(sizes, x):
    """The last one, and of the others those whose names have room beside each other."""
    kept = []
    for size in reversed(sizes):
        if not kept or x(kept[-1]) - x(size) >= 50:
            kept.append(size)
    return kept


def table(series, ratios):
    sizes = sorted({p.size for ps in series.values() for p in ps})
    found = {(name, p.size): p for name, ps in series.items() for p in ps}
    ratio = {(name, size): value for name, pairs in ratios.items() for size, value in pairs}
    heads = "".join(f'<th colspan="{2 + (name in ratios)}">{escape(name)}</th>' for name in series)
    units = "".join("<th>us</th><th>bus GB/s</th>" + ("<th>over Tutti's</th>" if name in ratios else "")
                    for name in series)
    rows = []
    for size in sizes:
        cells = [f"<td>{named(size)}</td>"]
        for name in series:
            p = found.get((name, size))
            bad = ' class="bad"' if p and p.wrong else ""
            wrong = f" ({p.wrong:g} wrong)" if p and p.wrong else ""
            cells.append(f"<td{bad}>{number(p.us) + wrong if p else ''}</td><td>{number(p.bus) if p else ''}</td>")
            if name in ratios:
                cells.append(f"<td>{ratio[name, size]:.2f}</td>" if (name, size) in ratio else "<td></td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return (f"<table><thead><tr><th></th>{heads}</tr><tr><th>size</th>{units}</tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table>")


def source(run):
    entries = "".join(f"<dt>{escape(what)}</dt><dd>{escape(text)}</dd>" for what, text in run.about if text)
    return f"<h3>{escape(run.name)}</h3><dl>{entries}</dl>"


def named(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"


def number(value):
    if value == 0:
        return "0"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def escape(text):
    return html.escape(str(text))
