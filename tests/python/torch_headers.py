"""torch_headers.py SOURCE BUILD [VERSION...]: the backend of bindings/torch compiles with the headers of the last
release of every torch from 2.0 on that has a wheel for this Python, or of those VERSIONs. pip fetches the wheels for
macOS, which have the same headers and a tenth of the size of those for Linux. Only the headers are kept, in
BUILD/torch-headers. Skips (77) where pip can't fetch them."""
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

FIRST = (2, 0)
LIMIT = 600  # seconds of one run of pip or the compiler
PLATFORMS = ("--only-binary=:all:", "--platform=macosx_11_0_arm64", "--platform=macosx_14_0_arm64",
             f"--python-version={sys.version_info[0]}.{sys.version_info[1]}")


def pip(build, *arguments):
    """What it prints."""
    done = subprocess.run([build / "python/bin/python", "-m", "pip", "--disable-pip-version-check", *arguments],
                          capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode != 0:
        raise OSError((done.stderr.strip().splitlines() or ["it says nothing"])[-1])
    return done.stdout


def releases(build):
    """The last one of each minor version, from the first to the newest."""
    said = pip(build, "index", "versions", "torch", *PLATFORMS)
    versions = re.findall(r"\d+\.\d+\.\d+", re.search("^Available versions: (.*)$", said, re.M)[1])
    last = {}
    for version in sorted(tuple(int(part) for part in version.split(".")) for version in versions):
        if version >= FIRST:
            last[version[:2]] = ".".join(map(str, version))
    return list(last.values())


def headers(build, version):
    """Where they are. A folder is there whole, or not at all."""
    folder = build / "torch-headers"
    target = folder / version
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            pip(build, "download", "--quiet", "--no-deps", *PLATFORMS, "--dest", scratch, f"torch=={version}")
            beside = pathlib.Path(scratch, "new")
            with zipfile.ZipFile(next(pathlib.Path(scratch).glob("*.whl"))) as wheel:
                wheel.extractall(beside, [name for name in wheel.namelist() if name.startswith("torch/include/")])
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
    source, build = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    (build / "torch-headers").mkdir(exist_ok=True)
    try:
        include = {version: headers(build, version) for version in sys.argv[3:] or releases(build)}
    except OSError as error:
        print(f"skipped: pip can't fetch torch's headers: {error}")
        return 77
    wrong = []
    for version, folder in include.items():
        said = compiled(source, version, folder, build / "torch-headers")
        print(f"torch {version}: {'fine' if not said else 'does not compile'}", flush=True)
        if said:
            wrong.append(version)
            print("\n".join(line for line in said.splitlines() if "error" in line)[:4000])
    print(f"{len(include) - len(wrong)} versions of torch compile, {len(wrong)} do not")
    return 1 if wrong or not include else 0


if __name__ == "__main__":
    sys.exit(main())
