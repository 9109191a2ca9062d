"""The console scripts: each is a program in the folder bin. All *_perf are one, which looks at its name."""
import os
import pathlib
import sys

FOLDER = pathlib.Path(__file__).parent / "bin"


def main() -> None:
    name = pathlib.Path(sys.argv[0]).name
    program = FOLDER / ("perf" if name.endswith("_perf") else name)
    try:
        os.execv(program, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {error.strerror}: {program}")
