"""Builds tutti_torch for the torch of this Python. libtutti is found by pkg-config: see README.md."""
import os
import shlex
import subprocess

import setuptools
import torch
from torch.utils import cpp_extension

FOLDER = os.path.dirname(os.path.abspath(__file__))


def pkg_config(*arguments):
    try:
        return shlex.split(subprocess.run(["pkg-config", *arguments, "tutti"], check=True, text=True,
                                          stdout=subprocess.PIPE).stdout)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit("tutti_torch: pkg-config does not know 'tutti': install Tutti, or let PKG_CONFIG_PATH lead to "
                         f"the folder of its tutti.pc ({error})") from error


def standard():
    """Headers of newer versions of torch are C++20, those of older ones not yet."""
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    return "-std=c++20" if (major, minor) >= (2, 8) else "-std=c++17"


folders = [flag[2:] for flag in pkg_config("--libs-only-L")]
setuptools.setup(
    name="tutti_torch",
    version="0.1.0",
    packages=["tutti_torch"],
    ext_modules=[cpp_extension.CppExtension(
        "tutti_torch._C",
        sorted(os.path.join("csrc", name) for name in os.listdir(os.path.join(FOLDER, "csrc"))
               if name.endswith(".cpp")),
        extra_compile_args=[standard(), "-O2", "-g0", "-Wall", "-fvisibility=hidden", *pkg_config("--cflags")],
        # Where the compiler links libstdc++.a, torch's libstdc++ must not take the place of parts of it.
        extra_link_args=["-Wl,--exclude-libs,ALL", *pkg_config("--libs"),
                         *(f"-Wl,-rpath,{folder}" for folder in folders)])],
    cmdclass={"build_ext": cpp_extension.BuildExtension},
)
