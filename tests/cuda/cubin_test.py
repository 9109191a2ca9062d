#!/usr/bin/env python3
"""The machine code of sm_90, as NVIDIA's cuobjdump shows it: what PTX does not say. A bound that is passed on purpose
is changed here, and in docs/gpu-status.md."""
import collections
import functools
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

NVCC = sys.argv.pop(1)
OBJECTS = {path.stem: path for path in map(pathlib.Path, sys.argv[1:])}
del sys.argv[1:]
CUOBJDUMP = shutil.which("cuobjdump") or shutil.which("cuobjdump", path=str(pathlib.Path(NVCC).resolve().parent))
SOURCES = pathlib.Path(__file__).resolve().parents[2] / "src" / "kernels" / "cuda"

REGISTERS = 65536  # of a multiprocessor, given to warps by 256
THREADS = {"interpret": ("plan.hpp", "block_threads"), "small": ("plan.hpp", "block_threads"),
           "one_sided": ("one_sided.hpp", "one_sided_threads"), "meeting": ("meeting.hpp", "meeting_threads"),
           "multicast": ("multicast_plan.hpp", "multicast_threads"), "flat": ("flat.hpp", "flat_threads")}
STACK = {"interpret": 0, "small": 0, "one_sided": 0, "meeting": 0, "multicast": 0, "flat": 64}  # bytes of a thread
CODE = {"interpret": 540_000, "small": 135_000, "one_sided": 24_000, "meeting": 8_000,
        "multicast": 60_000,
        "flat": 260_000}  # bytes of a kernel
FP32_CODE = {"interpret": 180_000, "small": 84_000}


@functools.cache
def dump(what, name):
    """None where the object has no code for sm_90."""
    if not CUOBJDUMP:
        raise unittest.SkipTest("there is no cuobjdump, of CUDA's binary utilities")
    done = subprocess.run([CUOBJDUMP, what, "-arch", "sm_90", str(OBJECTS[name])], capture_output=True, text=True,
                          timeout=240, check=False)
    if "Function" not in done.stdout:
        raise unittest.SkipTest(f"{OBJECTS[name].name} has no code for sm_90: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def resources(name):
    """By kernel: REG, STACK, LOCAL and so on."""
    found = re.findall(r"Function (\S+):\s+(REG:.*)", dump("-res-usage", name))
    return {kernel: {key: int(value) for key, value in re.findall(r"([A-Z]+)(?:\[\d\])?:(\d+)", line)}
            for kernel, line in found}


@functools.cache
def instructions(name):
    """By kernel, with what they call: mnemonics with all their parts, in order."""
    kernels = {}
    for part in dump("-sass", name).split("Function : ")[1:]:
        kernels[part.split()[0]] = re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", part,
                                              re.MULTILINE)
    return kernels


def counted(mnemonics, pattern):
    return sum(count for mnemonic, count in collections.Counter(mnemonics).items() if re.fullmatch(pattern, mnemonic))


class Resources(unittest.TestCase):
    @staticmethod
    def each():
        return [(name, its | {"kernel": kernel}) for name in OBJECTS for kernel, its in resources(name).items()]

    def test_a_block_has_its_registers(self):
        for name, its in self.each():
            header, constant = THREADS[name]
            threads = int(re.search(rf"{constant} = (\d+);", (SOURCES / header).read_text())[1])
            warp = (its["REG"] * 32 + 255) // 256 * 256
            self.assertLessEqual(warp * threads // 32, REGISTERS, its)

    def test_a_meeting_finds_room_beside_other_kernels(self):
        self.assertLessEqual([its["REG"] for its in resources("meeting").values()], [40])

    def test_frames_are_empty(self):
        for name, its in self.each():
            self.assertLessEqual(its["STACK"], STACK[name], its)
            self.assertEqual(its["LOCAL"], 0, its)

    def test_every_type_has_its_kernel(self):
        self.assertEqual({name: len(resources(name)) for name in OBJECTS},
                         {"interpret": 9, "small": 9, "one_sided": 1, "meeting": 1, "multicast": 1, "flat": 1})


class Code(unittest.TestCase):
    @staticmethod
    def each(*names):
        return [(name, kernel, its) for name in names for kernel, its in instructions(name).items()]

    def test_it_does_not_grow_unseen(self):
        for name, kernel, mnemonics in self.each(*OBJECTS):
            self.assertLessEqual(16 * len(mnemonics),
                                 FP32_CODE.get(name, CODE[name]) if "NativeIf" in kernel else CODE[name], kernel)

    def test_what_peers_write_is_never_read_as_constant(self):
        for _, kernel, mnemonics in self.each("interpret", "small", "one_sided", "meeting"):
            self.assertEqual(counted(mnemonics, r"LDG?\..*CONSTANT.*"), 0, kernel)
            self.assertGreater(counted(mnemonics, r"LDG?\..*"), 0, kernel)

    def test_data_moves_in_packs(self):
        for name, kernel, mnemonics in self.each("interpret", "one_sided"):
            least = 40 if name == "interpret" else 8  # 8 of a copy; for each operation 4 at the head and 4 in the loop
            self.assertGreaterEqual(counted(mnemonics, r"LDG?\.E\.128"), least, kernel)
            self.assertGreaterEqual(counted(mnemonics, r"STG?\.E\.128"), least, kernel)

    def test_releases_have_their_fence_and_acquires_forget_what_is_cached(self):
        for _, kernel, mnemonics in self.each("interpret", "one_sided", "meeting"):
            releases = counted(mnemonics, r"STG?\.E(\.64)?\.STRONG\.SYS")
            acquires = counted(mnemonics, r"LDG?\.E(\.64)?\.STRONG\.SYS")
            both = counted(mnemonics, r"ATOMG?\.E\.ADD\.STRONG\.SYS")
            self.assertEqual(counted(mnemonics, r"MEMBAR\.ALL\.SYS"), releases + both, kernel)
            fences = counted(mnemonics, r"MEMBAR\.SC\.SYS")
            self.assertEqual(counted(mnemonics, r"CCTL\.IVALL"), acquires + both + fences, kernel)
            self.assertGreater(releases * acquires, 0, kernel)
            self.assertEqual(counted(mnemonics, r".*\.STRONG\.(GPU|CTA|SM).*"), 0, kernel)  # peers: other GPUs


if __name__ == "__main__":
    unittest.main(verbosity=2)
