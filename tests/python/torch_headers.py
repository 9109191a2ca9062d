"""torch_headers.py SOURCE BUILD [VERSION...]: the backend of bindings/torch compiles with the headers of the last
release of every torch from 2.0 on that has a wheel for this Python, or of those VERSIONs. Of each wheel on PyPI only
the headers are read, into BUILD/torch-headers."""
import io
import json
import pathlib
import re
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
import zipfile

FIRST = (2, 0)
LIMIT = 600  # seconds of one compiler's run
BLOCK = 4 << 20  # bytes asked for at once


class Remote(io.RawIOBase):
    """A file behind a URL, read by ranges; what was read last is kept."""

    def __init__(self, url):
        self.url, self.at, self.blocks = url, 0, {}
        with self.ask(0, 0) as answer:
            self.size = int(answer.headers["Content-Range"].split("/")[1])

    def ask(self, first, last):
        request = urllib.request.Request(self.url, headers={"Range": f"bytes={first}-{last}"})
        return urllib.request.urlopen(request, timeout=120)

    def seekable(self):
        return True

    def readable(self):
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def tell(self):
        return self.at

    def block(self, number):
        if number not in self.blocks:
            if len(self.blocks) > 4:
                self.blocks.clear()
            with self.ask(number * BLOCK, min(self.size, (number + 1) * BLOCK) - 1) as answer:
                self.blocks[number] = answer.read()
        return self.blocks[number]

    def readinto(self, buffer):
        number, offset = divmod(self.at, BLOCK)
        part = b"" if self.at >= self.size else self.block(number)[offset:offset + len(buffer)]
        buffer[:len(part)] = part
        self.at += len(part)
        return len(part)


def wheels():
    """{(major, minor): (version, url)}, of the last release of each."""
    request = urllib.request.Request("https://pypi.org/simple/torch/",
                                     headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        files = json.load(answer)["files"]
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    found = {}
    for file in files:
        name = re.fullmatch(rf"torch-(\d+)\.(\d+)\.(\d+)(?:-\d+)?-{tag}-{tag}-manylinux\w+x86_64.whl", file["filename"])
        if name is None or file.get("yanked"):
            continue
        version = tuple(int(part) for part in name.groups())
        if version >= FIRST and version >= found.get(version[:2], ((), ""))[0]:
            found[version[:2]] = (version, file["url"])
    return {minor: (".".join(map(str, version)), url) for minor, (version, url) in found.items()}


def headers(version, url, folder):
    """Where they are. A folder is there whole, or not at all."""
    target = folder / version
    if not target.exists():
        beside = folder / f"{version}.new"
        with zipfile.ZipFile(io.BufferedReader(Remote(url), BLOCK)) as wheel:
            names = [entry for entry in wheel.infolist() if entry.filename.startswith("torch/include/")]
            for entry in sorted(names, key=lambda entry: entry.header_offset):
                wheel.extract(entry, beside)
        beside.rename(target)
    return target / "torch" / "include"


def compiled(source, version, include, folder):
    """What the compiler says of all files in one; empty if nothing."""
    minor = tuple(int(part) for part in version.split(".")[:2])
    together = folder / f"{version}.cpp"
    files = sorted((source / "bindings" / "torch" / "csrc").glob("*.cpp"))
    together.write_text("#include <Python.h>\n" + "".join(f'#include "{file}"\n' for file in files))
    command = ["g++", "-std=c++20" if minor >= (2, 8) else "-std=c++17", "-fsyntax-only", "-w",
               f"-D_GLIBCXX_USE_CXX11_ABI={int(minor >= (2, 6))}", "-DTORCH_EXTENSION_NAME=_C",
               "-DTORCH_API_INCLUDE_EXTENSION_H", f"-I{source / 'include'}", "-isystem", include, "-isystem",
               include / "torch/csrc/api/include", "-isystem", sysconfig.get_paths()["include"], together]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    return "" if result.returncode == 0 else result.stderr


def main():
    source, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve() / "torch-headers"
    folder.mkdir(exist_ok=True)
    try:
        known = wheels()
    except urllib.error.URLError as error:
        print(f"PyPI does not answer: {error}")
        return 77
    chosen = [entry for entry in sorted(known.items()) if not sys.argv[3:] or entry[1][0] in sys.argv[3:]]
    if not chosen:
        print(f"PyPI has no such wheel for Python {sys.version_info[0]}.{sys.version_info[1]}")
        return 1
    wrong = []
    for _, (version, url) in chosen:
        said = compiled(source, version, headers(version, url, folder), folder)
        print(f"torch {version}: {'fine' if not said else 'does not compile'}", flush=True)
        if said:
            wrong.append(version)
            print("\n".join(line for line in said.splitlines() if "error" in line)[:4000])
    print(f"{len(chosen) - len(wrong)} versions of torch compile, {len(wrong)} do not")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
