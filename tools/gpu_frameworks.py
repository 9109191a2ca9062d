"""The frameworks' part of tools/gpu-check: programs written for NCCL, over our libnccl.so.2, with several ranks on one
GPU. Runs whatever of them is installed, and says of the others that they are not."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from gpu_cells import gpus

TOLERANCE = 1e-4  # of losses: sums of 2 or 4 parts round otherwise than those of the whole


def frameworks(check, folder, nccl_tests):
    """check: gpu-check's; folder: where frameworks/ lies; nccl_tests: NVIDIA's binaries, or None to look for them."""
    library = check.library("libnccl.so.2")
    if library is None:
        check.skip("frameworks", "there is no libnccl.so.2 in this build")
        return
    # First in line: the loader takes it, although frameworks load the libnccl of their wheels by path, too. So a look
    # at what is loaded proves nothing; Tutti's log does.
    check.environment |= {"LD_PRELOAD": str(library), "TUTTI_DEBUG": "INFO", "TUTTI_GPUS": str(gpus()),
                          "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    python = check.environment.get("PYTHON", sys.executable)
    scripts = folder / "frameworks"
    torch(check, python, folder)
    jax(check, python, scripts)
    cupy(check, python, scripts)
    nvidia_tests(check, nccl_tests)


def has(check, python, module):
    """Whether Python has it, and can use a GPU through it; else why not."""
    probe = {"torch": "import torch; assert torch.cuda.is_available(), 'it sees no GPU'",
             "jax": "import jax; assert jax.default_backend() == 'gpu', 'it sees no GPU'",
             "cupy": "import cupy; from cupy.cuda import nccl; assert nccl.available, 'it was built without NCCL'; "
                     "cupy.zeros(1)"}[module]
    environment = {k: v for k, v in check.environment.items() if k != "LD_PRELOAD"}
    try:
        result = subprocess.run([python, "-c", probe], capture_output=True, text=True, timeout=120, env=environment,
                                check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if result.returncode == 0 else (result.stderr.strip().splitlines() or ["?"])[-1]


def ran_on_tutti(result):
    """Whether it ended well, and rank 1's reductions were Tutti's, which says so at level INFO."""
    return result.returncode == 0 and "TUTTI INFO rank 1: all_reduce of" in result.stdout


def launched(check, n, command):
    return [check.program("tutti-run"), "-n", str(n)] + [str(part) for part in command]


def torch(check, python, folder):
    if missing := has(check, python, "torch"):
        check.skip("PyTorch", missing)
        return
    scripts = folder / "frameworks"
    alone = losses(check.run("PyTorch: one rank with the whole batch", [python, str(scripts / "train.py"), "alone"],
                             120, lambda r: losses(r) is not None))
    torch_over(check, python, scripts, "PyTorch", alone)
    # And over the backend of bindings/torch, which is built for this torch.
    before = check.environment
    check.environment = {k: v for k, v in before.items() if k != "LD_PRELOAD"}
    try:
        if missing := built_backend(check, python, folder):
            check.skip("PyTorch, backend tutti", missing)
        else:
            check.environment |= {"PYTHONPATH": str(check.out.resolve() / "torch"), "TUTTI_TORCH_BACKEND": "tutti"}
            torch_over(check, python, scripts, "PyTorch, backend tutti", alone)
    finally:
        check.environment = before


def torch_over(check, python, scripts, what, alone):
    for n in (2, 4):
        check.run(f"{what}: every collective of torch.distributed, {n} ranks",
                  launched(check, n, [python, scripts / "collectives.py"]), 180,
                  lambda r: ran_on_tutti(r) and "collectives ok" in r.stdout)
    for how in ("ddp", "fsdp") if alone is not None else ():
        for n in (2, 4):
            check.run(f"{what}: {how} of {n} ranks trains to the same loss",
                      launched(check, n, [python, scripts / "train.py", how]), 180,
                      lambda r: ran_on_tutti(r) and alike(losses(r), alone))


def built_backend(check, python, folder):
    """Builds tutti_torch into the folder `torch` of the results; why not, if it can't be."""
    packed = (folder / "torch").is_dir()
    source = folder / "torch" if packed else folder.parent / "bindings" / "torch"
    if not (source / "setup.py").exists():
        return "there is no source of it"
    environment = dict(check.environment)
    environment["PKG_CONFIG_PATH"] = str(folder / "lib" / "pkgconfig" if packed else check.build / "meson-uninstalled")
    environment["CPATH"] = str((folder if packed else folder.parent) / "include")
    target = check.out.resolve() / "torch"
    command = [python, "setup.py", "--quiet", "build", "--build-base", str(target / "obj"), "--build-lib", str(target)]
    try:
        made = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, timeout=600,
                              check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if made.returncode == 0 else (made.stderr.strip().splitlines() or ["setup.py failed"])[-1]


def losses(result):
    found = re.search(r"losses (\[.*\])", result.stdout) if result is not None else None
    return json.loads(found.group(1)) if found else None


def alike(ours, alone):
    return ours is not None and len(ours) == len(alone) and all(
        abs(a - b) <= TOLERANCE * max(abs(b), 1e-3) for a, b in zip(ours, alone)) and ours[-1] < ours[0]


def jax(check, python, scripts):
    if missing := has(check, python, "jax"):
        check.skip("JAX", missing)
        return
    check.run("JAX: shard_map, 2 ranks", launched(check, 2, [python, scripts / "jax_ranks.py"]), 180,
              lambda r: ran_on_tutti(r) and "jax ok" in r.stdout)


def cupy(check, python, scripts):
    if missing := has(check, python, "cupy"):
        check.skip("CuPy", missing)
        return
    with tempfile.TemporaryDirectory() as directory:
        check.run("CuPy: its nccl module, 2 ranks",
                  launched(check, 2, [python, scripts / "cupy_ranks.py", pathlib.Path(directory, "id")]), 120,
                  lambda r: ran_on_tutti(r) and "cupy ok" in r.stdout)


def nvidia_tests(check, folder):
    """NVIDIA's nccl-tests: ranks of one GPU are processes that MPI starts; without MPI only one rank per GPU."""
    places = [folder] if folder else ["nccl-tests/build", "/opt/nccl-tests/build", "/usr/local/nccl-tests/build"]
    found = [pathlib.Path(place) for place in places if place and pathlib.Path(place, "all_reduce_perf").exists()]
    if not found:
        searched = ", ".join(map(str, places))
        check.skip("nccl-tests", f"no all_reduce_perf in {searched}; --nccl-tests DIR says where")
        return
    with_mpi = shutil.which("mpirun") and "libmpi" in subprocess.run(
        ["ldd", str(found[0] / "all_reduce_perf")], capture_output=True, text=True, check=False).stdout
    for binary in sorted(found[0].glob("*_perf")):
        tail = ["-b", "8", "-e", "8K" if check.small else "16M", "-f", "8",
                "-g", "1" if with_mpi else check.environment["TUTTI_GPUS"]]
        for n in (2, 4) if with_mpi else (1,):
            head = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(n), "-x", "LD_PRELOAD", "-x",
                    "NCCL_TESTS_DEVICE=0"] if with_mpi else []
            check.run(f"nccl-tests: {binary.name}, {n} processes", head + [str(binary)] + tail, 120,
                      lambda r: r.returncode == 0 and "Out of bounds values : 0 OK" in r.stdout)
