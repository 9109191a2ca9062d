"""Builds tutti_torch_device (device.cpp) for the torch of this Python. EMULATED: where a libtutti.so.0 with emulated
GPUs lies."""
import os

import setuptools
import torch
from torch.utils import cpp_extension

FOLDER, LIBRARY = os.path.dirname(os.path.abspath(__file__)), os.environ["EMULATED"]
os.chdir(FOLDER)  # newer versions of setuptools take no absolute paths to sources
new = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8)
setuptools.setup(
    name="tutti_torch_device",
    ext_modules=[cpp_extension.CppExtension(
        "tutti_torch_device", ["device.cpp"],
        extra_compile_args=["-std=c++20" if new else "-std=c++17", "-O1", "-g0", "-Wall"],
        extra_link_args=[f"-L{LIBRARY}", "-l:libtutti.so.0", f"-Wl,-rpath,{LIBRARY}"])],
    cmdclass={"build_ext": cpp_extension.BuildExtension},
)
