"""The console scripts: each is a program in the folder bin. All *_perf are one, and those that are in libtutti.so
another, which look at their names."""
import os
import pathlib
import sys

FOLDER = pathlib.Path(__file__).parent / "bin"


def main() -> None:
    name = pathlib.Path(sys.argv[0]).name
    program = FOLDER / ("perf" if name.endswith("_perf") else name if name == "tutti-run" else "tutti-tools")
    try:
        os.execv(program, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {error.strerror}: {program}")
