"""Result files of different kinds as one list of points."""
import dataclasses
import json
import pathlib

# Bus bandwidth over algorithm bandwidth, as nccl-tests has it.
BUS = {"all_reduce": lambda n: 2 * (n - 1) / n, "broadcast": lambda n: 1} | dict.fromkeys(
    ("all_gather", "reduce_scatter", "alltoall"), lambda n: (n - 1) / n)


@dataclasses.dataclass(frozen=True)
class Point:
    subject: str   # what was measured: points of one subject share their plots
    series: str    # who did it, and how
    size: int      # bytes
    us: float
    bus: float     # GB/s
    wrong: float = 0


@dataclasses.dataclass
class Run:
    name: str
    about: list    # (what, text), for the reader
    points: list
    problems: list  # texts


def load(file):
    """The runs of a file: one, or in benchmarks.json of tools/gpu-check one for each of its tables."""
    name, document = pathlib.Path(file).name, json.loads(pathlib.Path(file).read_text())
    if "results" in document:
        return [(of_compare if "machine" in document else of_perf)(name, document)]
    tables = {key: table for key, table in document.items() if "results" in table}
    if not tables:
        raise KeyError("results")
    return [of_perf(key, table) for key, table in tables.items()]


def of_perf(name, document):
    config, arguments = document["config"], document["args"]
    ranks = len(config["devices"])
    collective = pathlib.Path(arguments[0]).name.removesuffix("_perf")
    kind = "GPU" if any(d.get("device_hex", "cuda") != "cpu" for d in config["devices"]) else "CPU"
    processes = len({(d["hostname"], d["pid"]) for d in config["devices"]})
    where = arrangement(ranks, processes, config["nthreads"], config["ngpus"])
    ours = "Tutti" if "tutti_version" in document else "NCCL"
    how = [config.get(key, "") for key in ("algorithm", "transport")]
    how += [config["memory"]] if config.get("memory", "private") != "private" else []
    how += ["graph"] if config.get("graph") else []
    label = " ".join([ours] + [f"({', '.join(filter(None, how))})"] * any(how))
    rival = document.get("vs") or {}
    points, problems = [], list(document.get("errors") or [])
    for row in document["results"]:
        subject = f"{collective}, {ranks} {kind} ranks{where}, {row['type']}" + (
            f" {row['redop']}" if row["redop"] != "none" else "")
        for place in ("out_of_place", "in_place"):
            half = row.get(place)
            if not half:
                continue
            suffix = " in place" if place == "in_place" else ""
            points.append(point(subject, label + suffix, row, half))
            if half.get("vs"):
                points.append(point(subject, "NCCL" + suffix, row, half["vs"]))
    if rival.get("refused"):
        problems.append(f"{rival['library']} took no part: {rival['refused']}")
    if document.get("out_of_bounds", {}).get("count"):
        problems.append(f"{document['out_of_bounds']['count']} measurements had wrong elements")
    about = [("started", document.get("start_time", "")), ("command", " ".join(arguments)),
             ("ranks", f"{ranks} in {processes} processes"),
             ("on", ", ".join(sorted({d.get("device_info", "") for d in config["devices"]})))]
    if rival:
        about.append(("against", f"{rival['library']} {version(rival.get('version', 0))}, {rival['path']}"))
    return Run(name, about, points, problems)


def arrangement(ranks, processes, threads, per_thread):
    if ranks == 1:
        return ""
    if per_thread > 1:
        return " (of one thread)" if per_thread == ranks else f" ({per_thread} for each thread)"
    return " (threads)" if processes == 1 else " (processes)" if threads == 1 else f" ({threads} for each process)"


def told_apart(runs):
    """Series of one subject and name that come from several files say which one."""
    files = {}
    for run in runs:
        for p in run.points:
            files.setdefault((p.subject, p.series), set()).add(id(run))
    for run in runs:
        run.points = [dataclasses.replace(p, series=f"{p.series} [{run.name}]")
                      if len(files[p.subject, p.series]) > 1 else p for p in run.points]
    return runs


def point(subject, series, row, half):
    return Point(subject, series, row["size"], half.get("time", half.get("cpu_time")), half["bus_bw"],
                 half.get("nwrong") or 0)


def of_compare(name, document):
    points = []
    best = {}  # of several settings of one library
    for row in document["results"]:
        op = row.get("op", "all_reduce").replace("all_to_all", "alltoall")  # as its perf program is called
        key = (op, row["ranks"], row["bytes"], row["library"])
        if key not in best or row["us"] < best[key]:
            best[key] = row["us"]
    for (op, ranks, size, library), us in best.items():
        subject = f"{op}, {ranks} CPU ranks (processes), float" + " sum" * ("reduce" in op)
        points.append(Point(subject, library, size, us, size / us / 1e3 * BUS[op](ranks)))
    about = [("started", document.get("time", "")), ("command", "bench/compare/compare"),
             ("on", f"{document.get('cores', '?')} cores, one core copies "
                    f"{document['machine'].get('memcpy_one_core_gbs', '?')} GB/s")]
    return Run(name, about, points, [])


def version(code):
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
