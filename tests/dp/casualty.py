"""Training in which a rank is killed."""
import os
import pathlib
import signal
import subprocess


def train_without_rank_2(command):
    """Kills rank 2 when step 50 is shown. The exit code, what was printed, and the errors."""
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for line in job.stderr:  # it is under way
            if line.startswith("step 50 "):
                break
        children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        victim = next(child for child in children
                      if b"RANK=2\0" in pathlib.Path(f"/proc/{child}/environ").read_bytes())
        os.kill(int(victim), signal.SIGKILL)
        output, errors = job.communicate(timeout=100)
    finally:
        job.kill()
    return job.returncode, output, errors
