"""What the figures say: the table, and the targets that Tutti sets itself."""
import statistics

from collectives import COLLECTIVES

TUTTI = ("Tutti private", "Tutti mapped")
PLAIN = ("plain copy", "plain zero-copy")  # programs, no libraries: what is possible with such buffers


def named(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def figure(us):
    return "-" if us is None else f"{us:.2f}" if us < 100 else f"{us:.1f}" if us < 1000 else f"{us:,.0f}"


class Results:
    """Of one collective."""

    def __init__(self, rows, op="all_reduce", cores=""):
        self.op = op
        self.title = COLLECTIVES[op].title() + cores
        self.rows = rows
        self.best = {}  # of a library's settings
        for row in rows:
            key = row["ranks"], row["bytes"], row["library"]
            if key not in self.best or row["us"] < self.best[key]["us"]:
                self.best[key] = row

    def apart(self):
        """For each distance that the cores had: the results of batches at that distance. [] if it did not change."""
        found = []
        for distance in ("near", "far"):
            rows = [{**row, **row[distance]} for row in self.rows if distance in row]
            if rows:
                found.append(Results(rows, self.op, f", cores {distance}"))
        return found

    def libraries(self):
        return list(dict.fromkeys(row["library"] for row in self.rows))

    def peers(self):
        return [name for name in self.libraries() if not name.startswith("Tutti") and name not in PLAIN]

    def time(self, ranks, size, library):
        row = self.best.get((ranks, size, library))
        return row and row["us"]

    def best_peer(self, ranks, size):
        times = [self.time(ranks, size, peer) for peer in self.peers()]
        return min((t for t in times if t is not None), default=None)

    def setting(self, ranks, size, library):
        return self.best[ranks, size, library]["setting"]


def shown(r):
    return "-" if r is None else f"{r:.2f}"


def ratio(other, own):
    return None if other is None or own is None else other / own


def floor(machine, op, ranks, size):
    """Microseconds to read every input once and to write every output once, at the speed at which both cores together
    copied that size in the best of the rounds; unless it is a broadcast, at least those of a bare meeting of so
    many processes. None: there were no rounds of so many, or nothing is known of a broadcast of so few bytes."""
    limit = machine.get(str(ranks))
    if limit is None:
        return None
    rate = limit["copy_by_size_gbs"].get(str(size))
    copy = 0 if rate is None else COLLECTIVES[op].moved(ranks) * size / rate / 1e3
    return max(copy, limit["meeting_us"]) if COLLECTIVES[op].meets else copy or None


def limits(machine):
    """In words."""
    large = str(64 << 20)
    return "\n".join(f"beside {ranks} processes: a cache line, one way, {m['hand_over_ns']:.0f} ns; a copy of 64 MiB, "
                     f"read + write, {m['copy_one_core_gbs']:.0f} GB/s on one core, "
                     f"{m['copy_by_size_gbs'][large]:.0f} on two" for ranks, m in machine.items())


def table(results, machine):
    lines = []
    for ranks in sorted({row["ranks"] for row in results.rows}):
        names = [name for name in (*TUTTI, *results.peers(), *PLAIN) if name in results.libraries()]
        lines += ["", f"{results.title}, {ranks} processes, microseconds",
                  f"{'size':>8}" + "".join(f"{name:>16}" for name in names)
                  + f"{'peer/private':>16}{'peer/mapped':>14}{'private/copy':>14}{'mapped/zero':>13}{'floor':>12}"]
        for size in sorted({row["bytes"] for row in results.rows if row["ranks"] == ranks}):
            best = results.best_peer(ranks, size)
            line = f"{named(size):>8}" + "".join(f"{figure(results.time(ranks, size, name)):>16}" for name in names)
            for own, width in zip(TUTTI, (16, 14)):
                r = ratio(best, results.time(ranks, size, own))
                line += f"{shown(r):>{width}}"
            for own, plain, width in zip(TUTTI, PLAIN, (14, 13)):
                line += f"{shown(ratio(results.time(ranks, size, own), results.time(ranks, size, plain))):>{width}}"
            lines.append(line + f"{figure(floor(machine, results.op, ranks, size)):>12}")
        lines.append("best settings")
        for peer in results.peers():
            sizes = sorted(size for r, size, library in results.best if (r, library) == (ranks, peer))
            lines.append(f"  {peer}: " + "; ".join(f"{named(s)} {results.setting(ranks, s, peer)}" for s in sizes))
    return "\n".join(lines)


def summary(results):
    """The least and the middle of all ratios, in words."""
    lines = ["", results.title]
    cells = sorted({(row["ranks"], row["bytes"]) for row in results.rows})
    pairs = [(f"{other} / {own}", lambda cell, o=other: results.time(*cell, o), own)
             for own, other in (*zip(TUTTI, PLAIN), (TUTTI[1], TUTTI[0]))]
    pairs += [(f"best peer / {own}", lambda cell: results.best_peer(*cell), own) for own in TUTTI]
    for name, other, own in pairs:
        known = [(ratio(other(c), results.time(*c, own)), c) for c in cells if other(c) and results.time(*c, own)]
        if known:
            least_of, (ranks, size) = min(known)
            lines.append(f"  {name}: least {least_of:.2f} ({ranks} processes, {named(size)}), median "
                         f"{statistics.median(r for r, _ in known):.2f} of {len(known)}")
    return "\n".join(lines)


def at_least(text, value, bound, unit="x"):
    return {"target": text, "value": value, "bound": bound, "unit": unit, "kind": "at least",
            "met": None if value is None else value >= bound}


def below(text, value, bound, unit):
    return {"target": text, "value": value, "bound": bound, "unit": unit, "kind": "below",
            "met": None if value is None else value < bound}


def least(values):
    known = [value for value in values if value is not None]
    return min(known, default=None)


def targets(results, machine, init_ms):
    """Of all-reduce."""
    t, big = results.time, 64 << 20
    sizes = sorted({row["bytes"] for row in results.rows})

    def gain(ranks, size, library):
        return ratio(results.best_peer(ranks, size), t(ranks, size, library))

    def gains(ranks, library, low):
        return least(gain(ranks, size, library) for size in sizes if size >= low)

    small = t(2, 8, "Tutti private")
    rows = [below("2 processes, 8 B: under 4 one-way hand-overs of a cache line",
                  None if small is None else 1e3 * small / machine["2"]["hand_over_ns"], 4, "hand-overs"),
            at_least("2 processes, private, every size: best peer / Tutti", gains(2, "Tutti private", 0), 1),
            at_least("2 processes, private, 64 MiB", gain(2, big, "Tutti private"), 1.4),
            at_least("2 processes, mapped, from 32 KiB", gains(2, "Tutti mapped", 32 << 10), 2.5)]
    over = [ratio(t(2, size, "Tutti mapped"), floor(machine, results.op, 2, size)) for size in sizes if size >= 1 << 20]
    known = [value for value in over if value is not None]
    rows.append(below("2 processes, mapped, from 1 MiB: times the floor", max(known, default=None), 1.3, "x"))

    def reach(ranks, size, bound):
        """What no library could exceed: the best peer's time over the floor."""
        best = ratio(results.best_peer(ranks, size), floor(machine, results.op, ranks, size))
        return "" if best is None or best >= bound else f"; the floor itself: {best:.2f}"
    for ranks in (4, 8):
        rows += [at_least(f"{ranks} processes, private, 8 B", gain(ranks, 8, "Tutti private"), 1.4),
                 at_least(f"{ranks} processes, private, 1 KiB{reach(ranks, 1 << 10, 2.5)}",
                          gain(ranks, 1 << 10, "Tutti private"), 2.5),
                 at_least(f"{ranks} processes, private, from 32 KiB", gains(ranks, "Tutti private", 32 << 10), 1.5),
                 at_least(f"{ranks} processes, mapped, from 1 MiB", gains(ranks, "Tutti mapped", 1 << 20), 3)]
    rows.append(below("8 processes: from the first call to the first finished all-reduce", init_ms, 20, "ms"))
    return rows


def target_table(rows):
    lines = ["", "targets"]
    for row in rows:
        value = "not measured" if row["value"] is None else f"{row['value']:.2f} {row['unit']}"
        met = {True: "met", False: "MISSED", None: "-"}[row["met"]]
        lines.append(f"  {met:<7} {row['target']}: {value} ({row['kind']} {row['bound']})")
    return "\n".join(lines)
