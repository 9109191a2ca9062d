"""Training in which a rank is killed."""
import os
import pathlib
import signal
import subprocess


def train_without_rank_2(command, replacement=None):
    """Kills rank 2 when step 50 is shown; replacement: a command that is begun when the others have said that it is
    gone. The exit code, what was printed, and the errors; with a replacement also its process, which has ended."""
    newcomer = None
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for line in job.stderr:  # it is under way
            if line.startswith("step 50 "):
                break
        children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        victim = next(child for child in children
                      if b"RANK=2\0" in pathlib.Path(f"/proc/{child}/environ").read_bytes())
        os.kill(int(victim), signal.SIGKILL)
        said = ""
        if replacement:
            for line in job.stderr:
                said += line
                if "rank 2 is gone" in line:
                    break
            newcomer = subprocess.Popen(replacement, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        output, errors = job.communicate(timeout=100)
        if newcomer:
            newcomer.said, _ = newcomer.communicate(timeout=100)
    finally:
        for process in filter(None, (job, newcomer)):
            process.kill()
    found = (job.returncode, output, said + errors)
    return (*found, newcomer) if newcomer else found
