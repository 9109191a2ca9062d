"""abi_test.py NM CC LIBRARY HEADER VALUES_C: libnccl.so.2 exports what our nccl.h declares, as NCCL does; both agree
with NVIDIA's header, where that is installed."""
import pathlib
import re
import site
import subprocess
import sys
import tempfile
import unittest

NM, CC, LIBRARY, HEADER, VALUES = sys.argv[1:6]
NVIDIA = [p for p in ("/usr/local/cuda/include", "/usr/include", "/usr/local/include")
          if pathlib.Path(p, "nccl.h").exists() and "Tutti" not in pathlib.Path(p, "nccl.h").read_text()]


# What NVIDIA's libnccl.so.2 of 2.30.7 exports beside the functions of nccl.h: the host side of nccl_device.h. A
# framework that links one of them does not load without it.
OF_NCCL_DEVICE_H = """ncclCommQueryProperties ncclDevCommCreate ncclDevCommDestroy ncclGetLsaDevicePointer
    ncclGetLsaMultimemDevicePointer ncclGetMultimemDevicePointer ncclGetPeerDevicePointer
    ncclGinBarrierCreateRequirement ncclGinInboxA2ACreateRequirement ncclGinOutboxCreateRequirement ncclLLA2ACalcSlots
    ncclLLA2ACreateRequirement ncclLsaBarrierCreateRequirement ncclTeamLsa ncclTeamRail ncclTeamRankToLsa
    ncclTeamRankToWorld ncclTeamWorld""".split()
INSTALLED = [p for place in (*sys.path, *site.getsitepackages(), "/usr/lib/x86_64-linux-gnu", "/usr/local/cuda/lib64")
             for p in (pathlib.Path(place, "nvidia/nccl/lib/libnccl.so.2"), pathlib.Path(place, "libnccl.so.2"))
             if p.exists()]


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def exported(library=LIBRARY):
    """{name: kind}; a version would be a part of the name."""
    lines = [line.split() for line in run(NM, "-D", "--defined-only", library).splitlines()]
    return {words[-1]: words[-2] for words in lines}


class Abi(unittest.TestCase):
    def test_exports(self):
        declared = re.findall(r"^NCCL_FUNCTION\([^,]+, (nccl\w+),", pathlib.Path(HEADER).read_text(), re.MULTILINE)
        self.assertGreater(len(declared), 40)
        declared += OF_NCCL_DEVICE_H
        expected = {name: "W" for name in declared} | {"p" + name: "T" for name in declared}
        self.assertEqual(exported(), expected | {"ncclResetDebugInitInternal": "T"})

    def test_soname(self):
        self.assertIn("libnccl.so.2", run("readelf", "-d", LIBRARY))

    @unittest.skipUnless(INSTALLED, "NVIDIA's libnccl.so.2 is not installed")
    def test_exports_of_nvidias_library(self):
        theirs = {name for name in exported(INSTALLED[0]) if re.fullmatch("p?nccl[A-Z]\\w+", name)}
        self.assertGreater(len(theirs), 60)
        self.assertEqual(theirs - set(exported()), set())

    @unittest.skipUnless(NVIDIA, "NVIDIA's nccl.h is not installed")
    def test_functions_of_nvidias_header(self):
        text = pathlib.Path(NVIDIA[0], "nccl.h").read_text()
        theirs = set(re.findall(r"^(?:ncclResult_t|const char\*|void)\s+(nccl\w+)\s*\(", text, re.MULTILINE))
        self.assertGreater(len(theirs), 30)
        self.assertEqual(theirs - set(exported()), set())

    @unittest.skipUnless(NVIDIA, "NVIDIA's nccl.h is not installed")
    def test_values_of_nvidias_header(self):
        with tempfile.TemporaryDirectory() as directory:
            printed = []
            for include in (pathlib.Path(HEADER).parent, NVIDIA[0]):
                program = pathlib.Path(directory, f"values{len(printed)}")
                run(CC, "-I", include, "-I", NVIDIA[0], VALUES, "-o", program)
                printed.append(run(program))
        self.assertEqual(printed[0], printed[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
