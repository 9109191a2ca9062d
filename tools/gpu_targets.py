"""What was measured, beside what was aimed at: pure functions of benchmarks.json, which tools/gpu-check writes."""

REDUCTION_TYPES = {"float32": "fp32", "bfloat16": "bf16", "f8e4m3": "fp8"}
UNKNOWN = "not measured"


def target(what, wanted, figure, met):
    """A line of the table. met: None if it was not measured."""
    return {"what": what, "wanted": wanted, "figure": figure, "verdict":
            UNKNOWN if met is None else "MET" if met else "MISSED"}


def unmeasured(what, wanted):
    return target(what, wanted, "-", None)


def targets(documents):
    """documents: by the names that gpu_cells.benchmarks gives them; any may be missing."""
    lines = [reduction(documents, name, short) for name, short in REDUCTION_TYPES.items()]
    lines += [of_floor(documents, "threads 4", "all_reduce of 4 threads, 256 MiB fp32, of the floor", 0.85),
              of_floor(documents, "ring 4", "the same by ring", 0.5)]
    lines += [small(documents, n) for n in (2, 4, 8)]
    lines += [over_empty(documents), one_rank(documents), nothing_in_place(documents), memory(documents)]
    return lines


def reduction(documents, name, short):
    """The slowest of 2 to 8 sources, as a part of the bandwidth of copies, both in bytes read plus bytes written."""
    what, wanted = f"reduction kernel {short}, 2 to 8 sources of 256 MiB, of a copy's bandwidth", 0.92
    rows = [row for row in documents.get("reduction kernels", {}).get("reductions", [])
            if row["type"] == name and 2 <= row["sources"] <= 8]
    if not rows:
        return unmeasured(what, f">= {wanted}")
    worst = min(rows, key=lambda row: row["ratio"])
    complete = len({row["sources"] for row in rows}) == 7
    return target(what, f">= {wanted}", f"{worst['ratio']:.3f} with {worst['sources']}",
                  worst["ratio"] >= wanted if complete else None)


def times(document, half):
    """{bytes: microseconds} of one half of a table, "out_of_place" or "in_place"."""
    return {row["size"]: row[half]["time"] for row in (document or {}).get("results", []) if row.get(half)}


def copy_bandwidth(document):
    """GB/s, read plus written, of copies in the same run: the best, or None."""
    return max((copy["bandwidth"] for copy in (document or {}).get("copies", [])), default=None)


def of_floor(documents, name, what, wanted):
    """Floor: each rank's input is read once and each rank's output written once, as fast as copies are. The worse of
    in place and out of place counts."""
    document = documents.get(name, {})
    bandwidth, halves = copy_bandwidth(document), []
    ranks = len(document.get("config", {}).get("devices", []))
    for half in ("out_of_place", "in_place"):
        measured = times(document, half)
        if measured and bandwidth and ranks:
            size = max(measured)
            floor = 2 * ranks * size / bandwidth / 1e3  # microseconds
            halves.append(floor / measured[size])
    if len(halves) < 2:
        return unmeasured(what, f">= {wanted}")
    return target(what, f">= {wanted}", f"{halves[0]:.3f}, in place {halves[1]:.3f}", min(halves) >= wanted)


def slowest_small(documents, n):
    """Microseconds of the slowest message of 8 B to 8 KiB in a replayed graph, and its size."""
    document = documents.get(f"graph {n}")
    both = [(time, size) for half in ("out_of_place", "in_place") for size, time in times(document, half).items()
            if 8 <= size <= 8192]
    return max(both, default=None)


def small(documents, n):
    what, wanted = f"all_reduce of {n} ranks in a graph, 8 B to 8 KiB, slowest", "< 8 us"
    found = slowest_small(documents, n)
    return target(what, wanted, f"{found[0]:.2f} us at {found[1]} B", found[0] < 8) if found else \
        unmeasured(what, wanted)


def over_empty(documents):
    """How much longer 8 bytes take with 2 ranks than a kernel that does nothing."""
    what, wanted = "all_reduce of 2 ranks in a graph, 8 B, over an empty kernel", "<= 2 us"
    empty = documents.get("reduction kernels", {}).get("empty_replay_us")
    eight = [times(documents.get("graph 2"), half).get(8) for half in ("out_of_place", "in_place")]
    if empty is None or None in eight:
        return unmeasured(what, wanted)
    return target(what, wanted, f"{max(eight) - empty:.2f} us (the empty one {empty:.2f} us)", max(eight) - empty <= 2)


def one_rank(documents):
    what, wanted = "one rank, 256 MiB, of a copy's bandwidth", 0.95
    bandwidth, measured = copy_bandwidth(documents.get("one rank")), times(documents.get("one rank"), "out_of_place")
    if not bandwidth or not measured:
        return unmeasured(what, f">= {wanted}")
    size = max(measured)
    ratio = 2 * size / measured[size] / 1e3 / bandwidth
    return target(what, f">= {wanted}", f"{ratio:.3f}", ratio >= wanted)


def nothing_in_place(documents):
    """In a replayed graph even an empty kernel would take a microsecond; of nothing there is only the launch of the
    graph, shared by all operations in it."""
    what, wanted = "one rank in place, in a graph: nothing is launched", "< 0.5 us"
    measured = times(documents.get("graph 1"), "in_place")
    if not measured:
        return unmeasured(what, wanted)
    return target(what, wanted, f"{max(measured.values()):.2f} us", max(measured.values()) < 0.5)


def memory(documents):
    what, wanted = "GPU memory of a communicator of 8 ranks, each", "< 96 MiB"
    kib = documents.get("memory 8", {}).get("kib")
    return unmeasured(what, wanted) if kib is None else target(what, wanted, f"{kib / 1024:.1f} MiB", kib < 96 * 1024)


def race_of(document):
    """Why the other library did not race; None if it did."""
    return (document or {}).get("vs", {}).get("refused")


def table(lines):
    width = max(len(line["what"]) for line in lines)
    return "\n".join(f"{line['verdict']:12}  {line['what']:{width}}  {line['wanted']:>8}  {line['figure']}"
                     for line in lines)
