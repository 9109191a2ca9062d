"""Training in which a rank is killed."""
import os
import pathlib
import signal
import subprocess


def children_of(task):
    try:
        return [int(child) for child in (task / "children").read_text().split()]
    except OSError:  # a thread that has ended
        return []


def descendants(pid):
    tasks = pathlib.Path(f"/proc/{pid}/task")
    for task in list(tasks.iterdir()) if tasks.is_dir() else []:
        for child in children_of(task):
            yield child
            yield from descendants(child)


def environment_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return []


def process_of(job, rank):
    """The last one that has this rank in its environment: launchers come before."""
    return [pid for pid in descendants(job.pid) if f"RANK={rank}".encode() in environment_of(pid)][-1]


def train_without_rank_2(command, replace=None):
    """Kills rank 2 when step 50 is shown. replace: a function of the job that begins a process when the others have
    said that they go on. The exit code, what was printed, and the errors; with replace also its process, which
    has ended and has `said` what it had to say."""
    newcomer = None
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for line in job.stderr:  # it is under way
            if line.startswith("step 50 "):
                break
        os.kill(process_of(job, 2), signal.SIGKILL)
        said = ""
        if replace:
            for line in job.stderr:
                said += line
                if "ranks go on after step" in line:
                    break
            newcomer = replace(job)
        output, errors = job.communicate(timeout=100)
        if newcomer:
            newcomer.said, _ = newcomer.communicate(timeout=100)
    finally:
        for process in filter(None, (job, newcomer)):
            process.kill()
    found = (job.returncode, output, said + errors)
    return (*found, newcomer) if newcomer else found
