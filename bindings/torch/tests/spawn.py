"""Starts a script as ranks of one job, with torchrun's variables."""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(script, ranks, *arguments, **environment):
    """The processes; each one's output goes to the file `process.log`."""
    port, processes = free_port(), []
    for rank in range(ranks):
        variables = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
                     "GLOO_SOCKET_IFNAME": "lo", **environment}
        log = tempfile.TemporaryFile("w+")
        process = subprocess.Popen([sys.executable, str(HERE / script), *map(str, arguments)], env=variables,
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        process.log = log
        processes.append(process)
    return processes


def finish(processes, timeout=150):
    """[(exit status, output)] of all ranks; those that take longer are killed, with a status below 0."""
    ended = []
    for process in processes:
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            timeout = 1
            process.kill()
            process.wait()
        process.log.seek(0)
        ended.append((process.returncode, process.log.read()))
        process.log.close()
    return ended


def run(script, ranks, *arguments, **environment):
    return finish(start(script, ranks, *arguments, **environment))
