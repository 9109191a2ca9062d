"""quickstart_test.py QUICKSTART: tools/quickstart builds what its all-reduce needs, and CUDA only if there is a GPU or
it is asked for; it says which step it is at. The script itself runs, over stand-ins for Meson, Ninja and nvidia-smi."""
import glob
import os
import pathlib
import pty
import shutil
import subprocess
import sys
import tempfile
import unittest

QUICKSTART = pathlib.Path(sys.argv.pop(1))
SETUP = "meson setup build -Dtests=false -Droom_units=true -Dcuda="

STANDINS = {
    "nvidia-smi": "[ -e gpu ]",
    "meson": """echo "meson $*" >>calls
mkdir -p build/meson-private
touch build/build.ninja
echo -O3 >build/compile_commands.json
for word; do case $word in -Dcuda=*) echo "cuda = ${word#-Dcuda=}" >build/meson-private/cmd_line.txt ;; esac; done""",
    "ninja": """echo "ninja $*" >>calls
echo '[1/2] one'
if [ -e broken ]; then echo 'FAILED: two'; echo 'error: no such thing'; exit 1; fi
mkdir -p build/tools build/bench
for made in build/tools/tutti-run build/bench/all_reduce_perf; do
    printf '#!/bin/sh\\necho "it ran: $*"\\n' >$made
    chmod +x $made
done
echo '[2/2] two'""",
}


class Quickstart(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="tutti-quickstart-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        for name in ("tools", "bin"):
            (self.folder / name).mkdir()
        for name in ("quickstart", "need.sh"):
            shutil.copy(QUICKSTART.parent / name, self.folder / "tools" / name)
        with open(self.folder / "tools/need.sh", "a", encoding="utf-8") as script:
            script.write("need() { :; }\n")  # a test installs nothing
        for name, does in STANDINS.items():
            (self.folder / "bin" / name).write_text(f"#!/bin/sh\n{does}\n")
            (self.folder / "bin" / name).chmod(0o755)

    def start(self, *arguments, **options):
        return subprocess.run([self.folder / "tools/quickstart", *arguments], text=True, check=False, timeout=60,
                              env=dict(os.environ, PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}"), **options)

    def calls(self, *arguments):
        """What a run that succeeds has called, and what it has said."""
        (self.folder / "calls").write_text("")
        done = self.start(*arguments, capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return (self.folder / "calls").read_text().splitlines(), done.stdout

    def without_gpu(self):
        if glob.glob("/dev/nvidia[0-9]*"):
            self.skipTest("this machine has a GPU")

    def test_without_a_gpu_there_is_no_cuda_and_no_needless_program(self):
        self.without_gpu()
        calls, said = self.calls()
        self.assertEqual(calls[0], SETUP + "disabled")
        self.assertRegex(calls[1], "^ninja -C build -j [0-9]+ tools/tutti-run bench/all_reduce_perf$")
        self.assertEqual(len(calls), 2)
        steps = [said.index(what) for what in ("[1/3] ", "[2/3] ", "without CUDA", "[3/3] ", "it ran: -n ", "try next")]
        self.assertEqual(steps, sorted(steps))

    def test_with_a_gpu_or_if_it_is_asked_for_there_is_cuda(self):
        (self.folder / "gpu").touch()
        self.assertIn(SETUP + "auto", self.calls()[0])
        (self.folder / "gpu").unlink()
        shutil.rmtree(self.folder / "build")
        self.assertIn(SETUP + "enabled", self.calls("--cuda")[0])

    def test_a_second_run_builds_in_the_same_folder_and_switches_cuda_on_once(self):
        self.without_gpu()
        self.calls()
        self.assertEqual(len(self.calls()[0]), 1)
        self.assertEqual(self.calls("--cuda")[0][0], "meson configure build -Dcuda=enabled")
        self.assertEqual(len(self.calls("--cuda")[0]), 1)

    def test_a_terminal_sees_how_far_the_build_is(self):
        try:
            ours, its = pty.openpty()
        except OSError as error:
            self.skipTest(f"no pseudo-terminals here: {error}")
        with open(ours, "rb", buffering=0) as terminal:
            done = self.start(stdout=its, stderr=subprocess.PIPE)
            os.close(its)
            said = b""
            try:
                while piece := terminal.read(4096):
                    said += piece
            except OSError:  # Linux's way to say that nobody has the other end any more
                pass
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(said, rb"\r  1 of 2 steps in \d+ s, about \d+ s left")

    def test_a_build_that_fails_shows_its_first_error(self):
        (self.folder / "broken").touch()
        done = self.start(capture_output=True)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("error: no such thing", done.stderr)
        self.assertIn("the build failed", done.stderr)

    def test_an_unknown_argument(self):
        done = self.start("--gpu", capture_output=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("unknown argument --gpu", done.stderr)


if __name__ == "__main__":
    unittest.main()
