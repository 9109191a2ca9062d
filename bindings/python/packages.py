"""packages.py BUILD: where nanobind is. Prints its folder, or fails and says why there is none.

As a part of this Python, as in the build of a wheel; else in BUILD/python, a virtual environment that is made with
nanobind, meson-python and NumPy's wheel from wherever pip is told to fetch them.
"""
import pathlib
import subprocess
import sys
import venv

PACKAGES = ["nanobind", "meson-python"]
ARRAYS = ["numpy", "ml_dtypes"]  # what the tests use, to be installed where they run


def fetched(folder):
    """The environment's Python, with the packages in it."""
    python = folder / "bin/python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "--retries", "1",
               "--timeout", "15"]
        subprocess.run([*pip, "install", *PACKAGES], check=True)
        subprocess.run([*pip, "download", "--no-deps", "--dest", folder / "wheels", *ARRAYS], check=True)
        (folder / "complete").touch()
    return python


def main():
    try:
        import nanobind
        print(pathlib.Path(nanobind.__file__).parent)
        return
    except ImportError:
        pass
    try:
        python = fetched(pathlib.Path(sys.argv[1]) / "python")
    except (subprocess.SubprocessError, OSError) as error:
        sys.exit(f"nanobind is not there, and can't be fetched: {error}")
    subprocess.run([python, "-c", "import nanobind, os; print(os.path.dirname(nanobind.__file__))"], check=True)


main()
