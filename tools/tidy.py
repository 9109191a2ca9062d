#!/usr/bin/env python3
"""The house rules, as a test. CONTRIBUTING.md says why; every rule below has its own small test at the end.

  tidy.py                       checks the tree; prints "file:line: what is wrong" and fails if there is any
  tidy.py --self-test           checks the rules
  tidy.py --write-environment   writes the table of docs/environment.md anew from src/base/config.cpp
  tidy.py --wrap FILE...        moves words of comments that stick out to the next line

What is enforced is what is here. KNOWN lists the places that break a rule today; it may only get shorter.
"""
import ast
import pathlib
import posixpath
import re
import sys

WIDTH = 120
PROSE_WIDTH = 100  # of Markdown, but for tables and code
FUNCTION_LINES = 70
FILE_LINES = {"src": 450, "include": 800, "bench": 800, "tools": 800, "tests": 800, "bindings": 800}
HEADER_LINES = 150  # in src/, but for these:
LONG_HEADERS = {"src/kernels/cuda/": "code of GPUs, which lies in headers",
                "src/transport/fifo.hpp": "the wire, its writer and its reader on one page",
                "src/transport/net/link.hpp": "one class, which each message over a network passes",
                "src/transport/plugin/abi.hpp": "declarations that are not ours"}

# (rule, file) -> how many times it may. A file that has improved to 0 must leave the list.
KNOWN = {}

CODE = (".cpp", ".hpp", ".ipp", ".h", ".c", ".cu", ".cuh")
READ = CODE + (".py", ".sh", ".in", ".map", ".pml", ".litmus")  # also files without a suffix, and meson.build

# Pattern (of code without comments and strings), where it is allowed, what to use instead. In src/ only.
BANNED = [
    (r"\b(secure_)?getenv\b", ["src/base/config.cpp"], "environment() or config() of base/config.hpp"),
    (r"\b(f|d)?printf\s*\(|\bputs\s*\(|std::(cout|cerr|clog)\b", ["src/base/log.cpp", "src/base/result.cpp"],
     "log() of base/log.hpp, or fail() of base/result.hpp"),
    (r"\bsystem_clock\b|\bCLOCK_REALTIME\b|\bgettimeofday\b|\btime\s*\((nullptr|NULL|0)\)", [],
     "Clock of base/os.hpp: the time of day may jump"),
    (r"#\s*include\s*<iostream>", [], "base/log.hpp"),
    (r"\bassert\s*\(", [], "TUTTI_ASSERT, which stays on in release builds"),
    (r"\b(sprintf|strcpy|strcat|gets|atoi|atol|atof)\s*\(", ["src/bootstrap/launch.cpp"],  # the kernel's own numbers
     "a bounded function that reports errors"),
    (r"\busing\s+namespace\s+std\b", [], "names with std::"),
    (r"\bstd::endl\b", [], "'\\n'"),
    (r"\bstd::j?thread\b(?!::)|\bpthread_create\b|\bstd::async\b", ["src/base/thread.hpp", "src/base/thread.cpp"],
     "start_thread() of base/thread.hpp: what its body throws does not end the process"),
]

# Where each room has its place, and what names it there.
MAPS = {"README.md": "src/{}", "docs/architecture.md": "`src/{}`", "docs/img/house.svg": ">{}<"}
# A room may include the rooms before it; README.md has the same order.
ORDER = ["base", "topology", "schedule", "algorithms", "bootstrap", "transport", "kernels", "gpu", "plan", "comm",
         "api", "dp"]
# Except these.
MAY_NOT_INCLUDE = {"kernels": ["algorithms"], "gpu": ["algorithms"], "transport": ["schedule", "algorithms"],
                   "bootstrap": ["schedule", "algorithms"],
                   "dp": [room for room in ORDER if room not in ("base", "dp")]}  # it is the C API's first user
# Exceptions: single files that may include more.
EXCEPTIONS = {"src/dp/gpu_backend.cpp": ["gpu"],  # memory of GPUs, and what their kernels do on it
              "src/dp/exact_sum.hpp": ["kernels"],  # the arithmetic of exact sums, which kernels share with it,
              "src/dp/optimizer.hpp": ["kernels"]}  # and that of updates
# Programs are data: what makes and proves them touches nothing outside memory.
PURE_ROOMS = ("schedule", "algorithms")
IMPURE = r"#\s*include\s*<(fstream|iostream|cstdio|stdio\.h|filesystem|thread|unistd\.h|fcntl\.h|sys/.*)>"


def room_of(path):
    parts = path.split("/")
    return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def in_code(tree, folders):
    return {p: t for p, t in tree.items() if p.endswith(CODE) and p.split("/")[0] in folders}


def bare(text):
    """C++ text with comments, strings and characters blanked; as many lines and columns as before."""
    def blank(match):
        s = match.group(0)
        if s[0] in "\"'":
            return s[0] + " " * (len(s) - 2) + s[-1]
        if s[0] == "R":
            return re.sub(r"[^\n]", " ", s)
        return re.sub(r"[^\n]", " ", s)
    comment, raw_string = r"//[^\n]*|/\*.*?\*/", r'R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"'
    string, character = r'"(?:[^"\\\n]|\\.)*"', r"(?<![0-9A-Fa-f])'(?:[^'\\\n]|\\.)+'"
    pattern = "|".join((comment, raw_string, string, character))
    return re.sub(pattern, blank, text, flags=re.DOTALL)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


# ---------------------------------------------------------------------------------------------------------------- rules
# A rule gets the tree (path -> text) and yields (path, line, problem).

def width(tree):
    for path, text in tree.items():
        for number, line in enumerate(text.splitlines(), 1):
            if not path.endswith((".md", ".svg")) and len(line) > WIDTH:
                yield path, number, f"{len(line)} columns; at most {WIDTH}"


def prose(tree):
    for path, text in tree.items():
        fenced = False
        for number, line in enumerate(text.splitlines() if path.endswith(".md") else [], 1):
            fenced ^= line.lstrip().startswith("```")
            if len(line) > PROSE_WIDTH and not fenced and not re.match(r"\||    |!?\[[^]]*\]\S*$", line):
                yield path, number, f"{len(line)} columns of prose; at most {PROSE_WIDTH}"


def unmerged(tree):
    for path, text in tree.items():
        for number, line in enumerate(text.splitlines(), 1):
            if re.match(r"(<{7}|>{7}) ", line):
                yield path, number, "what a merge left behind"


def file_length(tree):
    for path, text in tree.items():
        lines = text.count("\n")
        most = FILE_LINES.get(path.split("/")[0], lines)
        if path.startswith("src/") and path.endswith(".hpp") and not path.startswith(tuple(LONG_HEADERS)):
            most = HEADER_LINES
        if lines > most:
            yield path, lines, f"{lines} lines; at most {most}"


CONTAINER = r"(inline\s+)?namespace\b|extern\b|(template\s*<.*>\s*)?(class|struct|union|enum)\b"


def functions(text):
    """(first line, lines) of each function: a block outside of functions whose head has a parameter list."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, bare(text), flags=re.M)  # no preprocessor lines
    head = 0         # where the text since the last ; { or } begins
    opened = []      # for each open block: where its function began, or None for namespaces, classes and blocks
    inside = 0       # how many open blocks are functions or in one
    for match in re.finditer(r"[{};]", text):
        at, sign = match.start(), match.group(0)
        if sign == "{":
            words = text[head:at].strip()
            container = re.match(CONTAINER, words, re.S)
            is_function = not inside and "(" in words and not container and not words.endswith("=")
            opened.append(head + len(text[head:at]) - len(text[head:at].lstrip()) if is_function else None)
            inside += 1 if inside or is_function else 0
        elif sign == "}" and opened:
            start = opened.pop()
            inside -= 1 if inside else 0
            following = text[at + 1:].lstrip()[:1]
            if start is not None and following and following in ",{":
                head = start  # that was a member's initializer, the body is still to come
                continue
            if start is not None:
                first = line_of(text, start)
                yield first, line_of(text, at) - first + 1
        head = at + 1


def function_length(tree):
    for path, text in in_code(tree, ["src"]).items():
        for first, lines in functions(text):
            if lines > FUNCTION_LINES:
                yield path, first, f"a function of {lines} lines; at most {FUNCTION_LINES}"


def banned(tree):
    for path, text in in_code(tree, ["src"]).items():
        code = bare(text)
        for pattern, allowed, instead in BANNED:
            for match in re.finditer(pattern, code) if path not in allowed else ():
                yield path, line_of(code, match.start()), f"'{match.group(0).strip()}': use {instead}"


# No exception may leave a function of the C API: its body is one call of these, or of another such function. Those of
# NCCL's interface call them, and allocate nothing but handles and texts.
CATCHES_ALL = r"\b(guarded|grouped|call|issue_one_sided)\s*\(|\bcatch \(\.\.\.\)"
THROW_NOTHING = ("tuttiGetErrorString",)


def exceptions(tree):
    for path, text in in_code(tree, ["src"]).items():
        if room_of(path) not in ("api", "dp"):
            continue
        lines = bare(text).splitlines()
        for first, count in functions(text):
            body = "\n".join(lines[first - 1:first - 1 + count])
            name = re.match(r"[^\n(]*?\b(tutti[A-Z]\w*)\s*\(", body)
            if not name or name.group(1) in THROW_NOTHING or re.search(CATCHES_ALL, body[name.end():]):
                continue
            if not re.search(r"\{\s*return tutti[A-Z]\w*\([^;]*\);\s*\}$", body.rstrip()):
                yield path, first, f"{name.group(1)} lets exceptions out: its body belongs into guarded()"


def unfinished(tree):
    for path, text in tree.items():
        for match in re.finditer(r"\b(TODO|FIX" + r"ME|XX" + r"X)\b", text):
            if path != "tools/tidy.py":
                yield path, line_of(text, match.start()), f"'{match.group(0)}': finish it, or open an issue"


def expected_failures(tree):
    for path, text in tree.items():
        for match in re.finditer(r"\bshould_fail\s*:", text) if path.endswith("meson.build") else ():
            yield path, line_of(text, match.start()), "a crash would pass: check the exit code and the message"


def measured_times(tree):
    for path, text in in_code(tree, ["tests"]).items():
        for match in re.finditer(r'"[^"\n]*\bwaited \d', text):
            yield path, line_of(text, match.start()), "a busy machine waits longer: waited() of harness/harness.hpp"


def may_include(room):
    before = ORDER[:ORDER.index(room)] if room in ORDER else []
    return [r for r in before if r not in MAY_NOT_INCLUDE.get(room, [])]


def layers(tree):
    for path, text in in_code(tree, ["src"]).items():
        room = room_of(path)
        for match in re.finditer(r'^\s*#\s*include\s*"([a-z_]+)/', text, re.M):
            other = match.group(1)
            if room is None or other in (room, "tutti"):
                continue
            if other not in may_include(room) + EXCEPTIONS.get(path, []):
                yield path, line_of(text, match.start(1)), f"src/{room} must not include {other}/: see ORDER in tidy.py"
        for match in re.finditer(IMPURE, bare(text)) if room in PURE_ROOMS else ():
            yield path, line_of(text, match.start()), f"src/{room} does no input or output: '{match.group(0)}'"


def dead_files(tree):
    builds = "\n".join(t for p, t in tree.items() if p.endswith("meson.build"))
    includes = "\n".join(t for p, t in tree.items() if p.endswith(CODE))
    for path in in_code(tree, ["src"]):
        name = path.split("/")[-1]
        named = rf"['/]{re.escape(name)}'|'{re.escape(name.rsplit('.', 1)[0])}'"  # 'x.cpp', or 'x' in a foreach
        if path.endswith((".cpp", ".c", ".cu")) and not re.search(named, builds):
            yield path, 1, "no meson.build names this file"
        inside = path[len("src/"):]
        included = f'"{inside}"' in includes or f"'{inside}'" in builds  # precompiled: by the build
        if path.endswith((".hpp", ".ipp", ".h", ".cuh")) and not included:
            yield path, 1, "nothing includes this file"


def sources_named(build):
    """(offset, file) of what the text of a meson.build names: 'x.cpp', and in a foreach name + '.cpp'."""
    suffix = "(?:" + "|".join(re.escape(s) for s in READ) + ")"
    made = r"output: '[^']*'|copyfile\('[^']*', '[^']*'|[/+] '[^']*'"
    for match in re.finditer(rf"{made}|'([^'@\s]*[^'@\s./]{suffix})'", build):
        if match[1]:
            yield match.start(1), match[1]
    for loop in re.finditer(r"\bforeach (\w+)[^:]*: (\[[^]]*\]|\{.*?\}$)(.*?)\bendforeach", build, re.S | re.M):
        variable, values, body = loop.groups()
        for use in re.finditer(rf"(?:'([^']*)' / |[(\[,:] *){variable} \+ '({suffix})'", body):
            for name in re.finditer(r"'([^']*)'(?=:)" if values[0] == "{" else r"'([^']*)'", values):
                yield loop.start(2) + name.start(1), posixpath.join(use[1] or "", name[1] + use[2])


def named_files(tree):
    """What a meson.build names is there, also where this machine would not configure it: without nvcc, say."""
    for path, text in tree.items():
        build = re.sub(r"#[^\n]*", lambda m: " " * len(m[0]), text) if path.endswith("meson.build") else ""
        for offset, name in sources_named(build):
            if posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) not in tree:
                yield path, line_of(build, offset), f"there is no {name}"


def cited_files(tree):
    """A page cites files of code by the ends of their paths: they are there."""
    pages = {path: text for path, text in tree.items() if path.endswith(".md")}
    for path, text in pages.items():
        for cited in re.finditer(r"`((?:[\w-]+/)+[\w-]+\.(?:[ch]pp|[ch]|cu|cuh|py|pml))`", text):
            if not any(("/" + file).endswith("/" + cited[1]) for file in tree):
                yield path, line_of(text, cited.start()), f"there is no {cited[1]}"


def names_of_a_file(text):
    """(name, line) of what unnamed namespaces define: types, functions, constants."""
    inside, kind = False, r"(?:struct|class|enum(?: class)?|using) (\w+)(?= *[:={;]| final)(?!::)"
    for number, line in enumerate(bare(text).splitlines(), 1):
        inside = line.startswith("namespace {") or inside and not line.startswith("}  ")
        match = re.match(rf"{kind}|[\w:].*?[\w>&*] [&*]*(\w+)(?:\(|\[\w*\] = |\{{| = )", line) if inside else None
        if match:
            yield match[1] or match[2], number


SYSTEM = ("accept", "bind", "close", "connect", "listen", "open", "pipe", "poll", "read", "recv", "send", "socket",
          "wait", "write")


def room_names(tree):
    """Some builds compile a room as one unit (room_units): what two files call their own must not have one name."""
    for room in set(ORDER) - {"algorithms"}:  # whose builders are all called all_reduce: file by file
        build = tree.get(f"src/{room}/meson.build", "")
        build = "".join(re.findall(r"^ *sources \+= files\((.*?)\)", build, re.S | re.M))
        first = dict.fromkeys(SYSTEM, "unistd.h")
        for path in (f"src/{room}/{name}" for name in re.findall(r"'(.*?)'", build)):
            for name, line in names_of_a_file(tree.get(path, "")):
                if first.setdefault(name, path) != path:
                    yield path, line, f"{first[name]} has a '{name}' of its own, too, and a room may be one unit"


def tested_rooms(tree):
    rooms = {room_of(p) for p in in_code(tree, ["src"]) if p.endswith((".cpp", ".cu"))} - {None}
    tested = {p.split("/")[1] for p in in_code(tree, ["tests"])}
    for room in sorted(rooms - tested):
        yield f"src/{room}", 1, f"a room without tests: tests/{room} has none"


def mapped_rooms(tree):
    for room in sorted({room_of(p) for p in in_code(tree, ["src"])} - {None}):
        for path, name in MAPS.items():
            if name.format(room) not in tree.get(path, name.format(room)):
                yield path, 1, f"the map lacks src/{room}"


def packages(tree):
    known = tree.get("tools/need.sh", "")
    for path, text in tree.items():
        calls = re.finditer(r"\bdependency\('([^']+)'([^)]*)\)", text) if path.endswith("meson.build") else ()
        for match in calls:
            name, rest = match.groups()
            if name != "threads" and "required:" not in rest and f"[{name}]=" not in known:
                yield path, line_of(text, match.start()), f"tools/need.sh does not know the package of '{name}'"


# The programs that tests call, and the Debian package of each, which tools/check installs ("": every system has it).
PROGRAMS = {"sh": "", "ldd": "", "python3": "python3", "meson": "meson", "pkg-config": "pkg-config",
            "cmake": "cmake", "cc": "g++", "nm": "g++", "readelf": "g++", "strip": "g++", "shellcheck": "shellcheck",
            "ip": "iproute2", "tc": "iproute2", "nft": "nftables", "nsenter": "", "unshare": "",
            "mpirun.openmpi": "openmpi-bin", "mpirun.mpich": "mpich",
            "spin": "spin", "ninja": "ninja-build", "valgrind": "valgrind"}
# A test looks for these and skips: they are daemons, or not in Debian 12.
PROBED = ("munged", "slurmctld", "slurmd", "srun", "sinfo", "prterun", "herd7", "cuobjdump")
CALLS = (r"(?:\b(?:run|Popen|tool|daemon|program|which|find_program)\(\s*[\[({]*|\bPROGRAMS = \[)"
         r"""["']([a-z][\w.+-]*)""")


def programs(tree):
    needs = re.findall(r"^ *need (?:.*\\\n)*.*$", tree.get("tools/check", ""), re.M)
    needed = re.findall(r"[\w.+-]+", "".join(needs))
    for path, text in tree.items():
        calls = path.startswith("tests/") and path.endswith((".py", "meson.build")) or path == "tools/hosts.py"
        for match in re.finditer(CALLS, text) if calls else ():
            name = match.group(1)
            if name not in PROBED and (name not in PROGRAMS or PROGRAMS[name] not in [*needed, ""]):
                yield path, line_of(text, match.start(1)), (f"tools/check does not install '{name}': let it, or look"
                                                            " for it and skip (PROGRAMS and PROBED in tidy.py)")


def installed(tree):
    """What a script says that it needs is a package of which have() knows what it gives."""
    have = tree.get("tools/need.sh", "")
    known = {name for pattern in re.findall(r"^ {4}([\w.+| -]+)\)", have, re.M) for name in pattern.split(" | ")}
    known |= set(re.findall(r"\]=([\w.+-]+)", have))
    for path, text in tree.items():
        calls = re.finditer(r"^ *need ((?:.*\\\n)*.*)$", text, re.M) if path.startswith("tools/") else ()
        for call in calls:
            for name in re.findall(r"[a-z][\w.+-]+", re.sub(r"#.*|>&2", "", call[1])):
                if name not in known:
                    yield path, line_of(text, call.start(1)), f"tools/need.sh does not know what '{name}' gives"


def models(tree):
    """A model says by their names which functions it models, and in which files they are: they are there."""
    for path, text in tree.items():
        if not path.endswith((".pml", ".litmus")):
            continue
        own = set(re.findall(r"^(?:inline|proctype|#define) (\w+)", text, re.M))
        comments = list(re.finditer(r"/\*.*?\*/|\(\*.*?\*\)", text, re.S))
        said = "\n".join(comment[0] for comment in comments)
        files = re.findall(r"src/[\w/]+\.[ch]pp", said)
        folders = {file.rsplit("/", 1)[0] for file in files}
        for name in re.findall(r"(?<![\w/])\w+\.[ch]pp", said):  # beside one that was named in full
            files += [f"{folder}/{name}" for folder in folders if f"{folder}/{name}" in tree] or [name]
        for file in sorted(set(files) - set(tree)):
            yield path, line_of(text, text.find(file)), f"there is no {file}"
        code = "\n".join(bare(tree[file]) for file in set(files) & set(tree))
        for comment in comments:
            # In the list of what is modelled the model's own names begin the lines; elsewhere they may be meant, too.
            lists = "by their names" in " ".join(comment[0].replace("*", "").split())
            cites = r"(?m)(^ \*   )?\b(?:[A-Z]\w*::(\w+)|(\w+)\(\)|class (\w+))"
            for cited in re.finditer(cites, comment[0]):
                name = cited[2] or cited[3] or cited[4]
                if not ((cited[1] or not lists) and name in own) and not re.search(rf"\b{name}\b", code):
                    yield path, line_of(text, comment.start() + cited.start()), f"the code has no {name} there any more"


SIM_MUTANTS = "tests/sim/mutants.py"


def mutants(tree):
    """A mutant of the simulation edits a text that occurs once in its file."""
    for statement in ast.parse(tree.get(SIM_MUTANTS, "")).body:
        if not (isinstance(statement, ast.Assign) and statement.targets[0].id == "MUTANTS"):
            continue
        for name, edit in zip(statement.value.keys, statement.value.values):
            _, file, text, instead = ast.literal_eval(edit)
            count = tree.get(f"src/{file}", "").count(text)
            if count != 1 or text == instead:
                yield SIM_MUTANTS, name.lineno, f"its text occurs {count} times in src/{file}, and must once: {text!r}"


# ---------------------------------------------------------------------------------------------------------- environment

ENVIRONMENT = "docs/environment.md"
BEGIN, END = "<!-- table: tools/tidy.py --write-environment -->", "<!-- end of table -->"


def variables(config):
    """(name, default, meaning) of each row of the table in src/base/config.cpp."""
    string = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
    for row in re.finditer(r"\{\s*" + r",\s*".join([string] * 3) + r"\}", config):
        yield ["".join(re.findall(r'"((?:[^"\\]|\\.)*)"', field)).replace('\\"', '"') for field in row.groups()]


def environment_table(config):
    def table(rows, columns):
        return ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)] + \
            ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    rows = list(variables(config))
    own = [(f"`{n}`", f"`{d}`" if d else "unset", m) for n, d, m in rows if n.startswith("TUTTI_")]
    nccls = [(f"`{n}`", m) for n, d, m in rows if n.startswith("NCCL_")]
    others = [(f"`{n}`", m) for n, d, m in rows if not n.startswith(("TUTTI_", "NCCL_"))]
    lines = table(own, ["variable", "default", "meaning"])
    lines += ["", "## NCCL's variables", ""]
    lines += ["A variable of NCCL's applies if the Tutti variable that it names is unset.", ""]
    lines += table(nccls, ["variable", "meaning"])
    lines += ["", "## Variables of the system and of launchers", "", "`tuttiCommInitEnv` reads those of launchers:", ""]
    lines += table(others, ["variable", "meaning"])
    return "\n".join([BEGIN, ""] + lines + ["", END])


def with_table(page, config):
    before, rest = page.split(BEGIN)
    return before + environment_table(config) + rest.split(END)[1]


def environment(tree):
    page, config = tree.get(ENVIRONMENT, ""), tree.get("src/base/config.cpp", "")
    if BEGIN not in page or END not in page:
        yield ENVIRONMENT, 1, "the page or its table's marks are missing"
    elif not list(variables(config)):
        yield "src/base/config.cpp", 1, "no rows {\"NAME\", \"default\", \"meaning\"} found"
    elif with_table(page, config) != page:
        yield ENVIRONMENT, 1, "differs from the table in src/base/config.cpp: run tools/tidy.py --write-environment"


RULES = [width, prose, unmerged, file_length, function_length, banned, exceptions, unfinished, expected_failures,
         measured_times, layers, dead_files, named_files, cited_files, room_names, tested_rooms, mapped_rooms,
         packages, programs, installed, models, mutants, environment]


# ----------------------------------------------------------------------------------------------------------------- wrap

COMMENT = re.compile(r"(\s*)(///?|#|/\*|\*)( +)(?=\S)")


def prefix_after(prefix, line, following):
    """What begins the line after `line`, and whether that is `following`, the rest of the same paragraph."""
    mark = prefix.group(2)
    match = COMMENT.match(following)
    begins_item = re.match(r"\s*\S+\s+(\(\d+\)|-|\d+\.|@|REQUIRES)\s*", following)
    if match and not begins_item and match.group(2) == {"/*": "*"}.get(mark, mark):
        return match.group(0), True
    item = re.match(r"\(\d+\) |- |\d+\. ", line[prefix.end():])
    own = prefix.group(0).replace("/*", " *")
    return own + " " * (len(item.group(0)) if item else 0), False


def wrap(text):
    lines, at = text.split("\n"), 0
    while at < len(lines):
        line, prefix = lines[at], COMMENT.match(lines[at])
        if len(line) > WIDTH and re.search(r"-{20,}", line):
            lines[at] = re.sub(r"-{20,}", lambda m: m.group(0)[len(line) - WIDTH:], line)
        elif len(line) > WIDTH and prefix and line.rfind(" ", prefix.end(), WIDTH + 1) > 0:
            cut = line.rfind(" ", prefix.end(), WIDTH + 1)
            if line[cut + 1:] == "*/":
                cut = line.rfind(" ", prefix.end(), cut)
            following, same = prefix_after(prefix, line, lines[at + 1] if at + 1 < len(lines) else "")
            tail = following + line[cut + 1:]
            if same and not line.endswith("*/"):
                lines[at + 1] = tail + " " + lines[at + 1][len(following):]
            else:
                lines.insert(at + 1, tail)
            lines[at] = line[:cut]
        at += 1
    return "\n".join(lines)


# ----------------------------------------------------------------------------------------------------------------- main

def read_tree(root):
    tree = {}
    for top in ("src", "include", "bench", "tools", "tests", "examples", "bindings", ".ci"):
        for path in sorted((root / top).rglob("*")):
            if not path.is_file() or "__pycache__" in path.parts or "corpus" in path.parts:
                continue
            if path.suffix in READ + ("",) or path.name == "meson.build":
                tree[str(path.relative_to(root))] = path.read_text(encoding="utf-8")
    for pattern in ("meson.build", "*.md", "docs/*.md", "docs/img/house.svg"):
        for path in sorted(root.glob(pattern)):
            tree[str(path.relative_to(root))] = path.read_text(encoding="utf-8")
    return tree


def check(tree):
    problems = []
    for rule in RULES:
        found = {}
        for path, line, problem in rule(tree):
            found.setdefault(path, []).append(f"{path}:{line}: {problem}")
        for path, lines in found.items():
            if len(lines) > KNOWN.get((rule.__name__, path), 0):
                problems += lines
        for (name, path) in KNOWN:
            if name == rule.__name__ and path not in found:
                problems.append(f"tools/tidy.py:1: {path} keeps the rule '{name}' now: take it out of KNOWN")
    return problems


def main(arguments):
    root = pathlib.Path(__file__).resolve().parent.parent
    if arguments == ["--self-test"]:
        self_test()
    elif arguments == ["--write-environment"]:
        page = root / ENVIRONMENT
        page.write_text(with_table(page.read_text(encoding="utf-8"),
                                   (root / "src/base/config.cpp").read_text(encoding="utf-8")), encoding="utf-8")
    elif arguments[:1] == ["--wrap"]:
        for path in map(pathlib.Path, arguments[1:]):
            path.write_text(wrap(path.read_text(encoding="utf-8")), encoding="utf-8")
    elif not arguments:
        problems = check(read_tree(root))
        print("\n".join(problems) or "tidy")
        sys.exit(1 if problems else 0)
    else:
        print(f"tidy.py: unknown argument {arguments[0]}", __doc__, sep="\n", file=sys.stderr)
        sys.exit(2)


# ----------------------------------------------------------------------------------------------------------- self-test

def breaks(rule, tree, *lines):
    """Asserts that the rule finds problems on exactly these lines."""
    found = list(rule(tree))
    assert [line for _, line, _ in found] == list(lines), (rule.__name__, tree, found)


def self_test():
    breaks(width, {"src/a/a.cpp": "x\n" + "y" * 121 + "\n" + "z" * 120, "docs/a.md": "y" * 300}, 2)
    breaks(width, {"examples/a/a.py": "z" * 121, "meson.build": "z\n" + "z" * 121}, 1, 2)
    breaks(prose, {"docs/a.md": "a\n" + "y " * 51 + "\n| " + "y " * 60 + "\n\n    " + "y " * 60}, 2)
    breaks(unmerged, {"docs/a.md": "a\n" + "<" * 7 + " HEAD\nb\n" + ">" * 7 + " c\n"}, 2, 4)
    breaks(file_length, {"src/a/a.cpp": "x\n" * 450, "src/a/b.cpp": "x\n" * 451, "tests/a/a.cpp": "x\n" * 800}, 451)
    breaks(file_length, {"src/comm/a.hpp": "x\n" * 150, "src/plan/b.hpp": "x\n" * 151, "docs/a.md": "x\n" * 999,
                         "src/kernels/cuda/c.hpp": "x\n" * 400, "tests/a/a.hpp": "x\n" * 151}, 151)

    def body(lines):
        return "{\n" + "    if (x) { y(); }\n" * (lines - 2) + "}\n"
    breaks(function_length, {"src/a/a.cpp": "namespace a {\n" + "int f(int x) " + body(70) + "}"})
    breaks(function_length, {"src/a/a.cpp": "namespace a {\n" + "int f(int x) " + body(71) + "}"}, 2)
    breaks(function_length, {"src/a/a.cpp": "struct S {\n  S(int x) : a_{x}, b_(1) " + body(71) + "  int a_;\n};"}, 2)
    breaks(function_length, {"src/a/a.cpp": "struct S : T<(1)> {\n" + "int a;\n" * 100 + "};"})
    breaks(function_length, {"src/a/a.cpp": "const int t[] = {\n" + "1,\n" * 90 + "};"})
    breaks(function_length, {"src/a/a.cpp": "auto f = [](int x) " + body(71) + ";\n"}, 1)
    breaks(function_length, {"src/a/a.cpp": "void g() { s = \"{\"; c = '{'; } // {\n" + "void h() " + body(60)})

    breaks(banned, {"src/a/a.cpp": "// getenv\nf(\"getenv\");\nstd::getenv(x);", "src/base/config.cpp": "getenv(x)"}, 3)
    breaks(banned, {"src/a/a.cpp": "printf(x);\nsnprintf(x);\nstd::cout << 1;\nfprintf(stderr);\n"
                    "__attribute__((format(printf, 1, 2)));"}, 1, 3, 4)
    breaks(banned, {"src/a/a.cpp": "#include <iostream>\nstatic_assert(1);\nassert(1);\nTUTTI_ASSERT(1);"}, 1, 3)
    breaks(banned, {"tools/a.cpp": "printf(x);"})
    breaks(banned, {"src/a/a.cpp": "std::thread t(f);\nstd::thread::id id;\nstd::vector<std::jthread> all;\n"
                    "std::this_thread::yield();", "src/base/thread.cpp": "std::jthread t(f);"}, 1, 3)
    breaks(exceptions, {"src/api/a.cpp": "int tuttiA(int x) {\n    return guarded([&] { f(x); });\n}\n"
                        "int tuttiB(int x) {\n    return tuttiA(x);\n}\nint tuttiC(int x) {\n    g(x);\n"
                        "    return tuttiA(x);\n}\nvoid helper() {\n    f(1);\n}\n"}, 7)
    breaks(unfinished, {"src/a/a.cpp": "// TO" + "DO later\nmkstemp(\"/tmp/XXXXXX\");"}, 1)
    breaks(unfinished, {"tools/a.sh": "# FIX" + "ME"}, 1)

    breaks(expected_failures, {"tests/a/meson.build": "test('a', a)\ntest('b', b, should_fail: true)\n",
                               "a.py": "should_fail: true"}, 2)

    breaks(measured_times, {"tests/a/a.cpp": 'says("rank 0 waited " + x);\nsays("rank 0 waited 0.5 s for");'}, 2)

    def include(path, other):
        return {path: f'#include "{other}"\n'}
    breaks(layers, include("src/algorithms/ring.cpp", "schedule/program.hpp"))
    breaks(layers, include("src/algorithms/ring.cpp", "transport/transport.hpp"), 1)
    breaks(layers, include("src/kernels/host/x.cpp", "algorithms/algorithms.hpp"), 1)
    breaks(layers, include("src/kernels/host/x.cpp", "transport/transport.hpp"))
    breaks(layers, include("src/transport/shm.cpp", "schedule/program.hpp"), 1)
    breaks(layers, include("src/transport/shm.cpp", "comm/communicator.hpp"), 1)
    breaks(layers, include("src/new/new.cpp", "base/os.hpp"), 1)
    breaks(layers, include("src/schedule/verify.cpp", "algorithms/algorithms.hpp"), 1)
    breaks(layers, include("src/comm/communicator.cpp", "algorithms/algorithms.hpp"))
    breaks(layers, include("src/base/os.cpp", "tutti/tutti.h"))
    breaks(layers, include("src/dp/engine.cpp", "base/os.hpp"))
    breaks(layers, include("src/dp/engine.cpp", "comm/communicator.hpp"), 1)
    breaks(layers, include("src/dp/engine.cpp", "gpu/gpus.hpp"), 1)
    breaks(layers, include("src/dp/gpu_backend.cpp", "gpu/gpus.hpp"))
    breaks(layers, {"src/schedule/json.cpp": "#include <vector>\n#include <fstream>\n"}, 2)

    tree = {"src/a/a.cpp": '#include "a/a.hpp"', "src/a/a.hpp": "", "src/a/meson.build": "files('a.cpp')"}
    breaks(dead_files, tree)
    breaks(dead_files, {**tree, "src/a/b.cpp": ""}, 1)
    breaks(dead_files, {**tree, "src/a/b.hpp": ""}, 1)
    build = {"tests/a/meson.build": "if nvcc.found()\n  x = files('a.cpp', '../../bench/b.cu')  # 'c.cpp'\nendif\n"
             "configure_file(input: 'd.hpp.in', output: 'd.hpp')\ny = '.c' + z / 'y.map'\nforeach name : ['e', 'f']\n"
             "  executable(name, name + '.c')\nendforeach\nforeach name, flags : {'g': ['h']}\n"
             "  files('../b' / name + '.cpp')\nendforeach\n"}
    code = dict.fromkeys(["tests/a/a.cpp", "bench/b.cu", "tests/a/d.hpp.in", "tests/a/e.c", "tests/a/f.c",
                          "tests/b/g.cpp"], "")
    breaks(named_files, {**build, **code})
    breaks(named_files, build, 2, 2, 4, 6, 6, 9)
    breaks(named_files, {**build, **code, "bench/b.cu.in": "", "bench/meson.build": "'b.cpp'"}, 1)
    room = {"src/plan/meson.build": "sources += files('a.cpp',\n  'b.cpp')\nx = files('c.cpp')", "src/plan/a.cpp":
            "namespace {\nstruct A {\n    int x;\n};\nconstexpr int n = 1;\nint f(int x) {\n}\n}  // na\n"}
    breaks(room_names, {**room, "src/plan/c.cpp": "namespace {\nusing A = int;\n}  //", "src/plan/b.cpp":
                        "int f();\nusing A;\nnamespace {\nusing std::A;\nint g();\n}  //\nint n;"})
    breaks(room_names, {**room, "src/plan/b.cpp":
                        "namespace {\nusing A = int;\nint n[4] = {};\nA* f(int) {\n    g();\n}\nint read();"},
           2, 3, 4, 7)
    breaks(tested_rooms, {"src/a/a.cpp": "", "tests/a/a_test.cpp": ""})
    breaks(tested_rooms, {"src/a/a.cpp": "", "tests/b/a_test.cpp": ""}, 1)
    breaks(mapped_rooms, {"src/a/a.cpp": "", "README.md": "src/a/"})
    breaks(mapped_rooms, {"src/a/a.cpp": "", "README.md": "src/b/", "docs/img/house.svg": ">b<"}, 1, 1)
    breaks(packages, {"meson.build": "dependency('threads')\ndependency('x')\ndependency('y', required: z)",
                      "tools/need.sh": ""}, 2)
    breaks(packages, {"meson.build": "dependency('x')", "tools/need.sh": "[x]=libx-dev"})
    calls = {"tests/a/a.py": 'run("cc", "a.c")', "tools/check": "need a \\\n  g++\n"}
    breaks(programs, calls)
    breaks(programs, {**calls, "tools/check": "need a\n"}, 1)
    need_sh = "declare -A package_of=(\n    [b]=libb-dev\n)\n    aa | g++) there a ;;\n"
    breaks(installed, {"tools/need.sh": need_sh, "tools/check": "need aa g++ \\\n    libb-dev # of x\nneed_space c\n"})
    breaks(installed, {"tools/need.sh": need_sh, "tools/check": "x\n    need g++ cc\n"}, 2)
    breaks(programs, {**calls, "tests/a/b.py": 'tool("nobody-has-this")\nshutil.which("srun")'}, 1)

    model = ("/*\n * Models, by their names:\n *   own()  A::f(), g() of src/a/a.cpp, h() of b.cpp and class C\n */\n"
             "inline own()\n/* own(), A::x */")
    code = {"src/a/a.cpp": "class C {}; int A::f() { g(); }", "src/a/b.cpp": "void h(); int x;"}
    breaks(models, {"tests/models/m.pml": model, **code})
    breaks(models, {"tests/models/m.pml": model, **code, "src/a/b.cpp": "// h()\nint x;"}, 3)
    breaks(models, {"tests/models/m.pml": model, "src/a/a.cpp": code["src/a/a.cpp"]}, 3, 3, 6)
    breaks(models, {"tests/models/m.litmus": "C m\n(* f() in src/a/a.cpp *)", "src/a/a.cpp": ""}, 2)

    breaks(cited_files, {"docs/a.md": "`a/b.hpp`, `src/a/b.hpp` and `a/c.hpp`\n`x.hpp`", "src/a/b.hpp": ""}, 1)

    edits = {SIM_MUTANTS: 'MUTANTS = {\n"a": ("why", "a/a.cpp", "x;", ""),\n"b": ("why", "a/a.cpp", "y;", "")}'}
    breaks(mutants, {**edits, "src/a/a.cpp": "x; y;"})
    breaks(mutants, {**edits, "src/a/a.cpp": "x; x;"}, 2, 3)

    config = '{"TUTTI_A", "1", "One \\"or\\" "\n "two."}, {"RANK", "", "Mine | yours."}'
    assert list(variables(config)) == [["TUTTI_A", "1", 'One "or" two.'], ["RANK", "", "Mine | yours."]]
    page = with_table(f"intro\n{BEGIN}\nold\n{END}\nend\n", config)
    assert "| `TUTTI_A` | `1` | One \"or\" two. |" in page and page.startswith("intro\n") and page.endswith("\nend\n")
    breaks(environment, {ENVIRONMENT: page, "src/base/config.cpp": config})
    breaks(environment, {ENVIRONMENT: page, "src/base/config.cpp": config.replace("two", "three")}, 1)
    breaks(environment, {"src/base/config.cpp": config}, 1)
    words = ("x" * 9 + " ") * 11
    assert wrap(f"// {words}aaaa bbbb\n// next\n") == f"// {words}aaaa\n// bbbb next\n"
    assert wrap(f"// {words}aaaa bbbb\nint x;\n") == f"// {words}aaaa\n// bbbb\nint x;\n"
    assert wrap(f"/* {words}aaaa bbbb\n * next */\n") == f"/* {words}aaaa\n * bbbb next */\n"
    assert wrap(f"/* {words}aaaaa */\nint x;\n") == f"/* {words.rstrip()}\n * aaaaa */\nint x;\n"
    item = f" * (1) {words[:-10]}"
    assert wrap(f"{item}aaaa bbbb cccc\n * (2) next\n") == f"{item}aaaa bbbb\n *     cccc\n * (2) next\n"
    assert wrap("/* " + "-" * 130 + " memory */") == "/* " + "-" * 107 + " memory */"
    print("tidy rules: all found what they should")


if __name__ == "__main__":
    main(sys.argv[1:])
