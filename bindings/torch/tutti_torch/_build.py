"""The extension module, compiled for the torch of this environment when it is first used: once for each torch, Python,
libtutti and state of the sources."""
import importlib.machinery
import importlib.util
import pathlib
import sys
import sysconfig

import torch

try:
    import tutti
    from tutti import _compiled
except ImportError as error:
    error.msg += ("\ntutti: the backend is compiled by the package tutti when it is first used: install Tutti's wheel, "
                  "or build the backend for an installed Tutti (bindings/torch/build)")
    raise

SOURCES = pathlib.Path(__file__).resolve().parent / "csrc"


def library():
    """What is compiled, and how."""
    # Headers of newer versions of torch are C++20, those of older ones not yet.
    standard = "c++20" if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8) else "c++17"
    package = pathlib.Path(tutti.__file__).resolve().parent
    home = pathlib.Path(torch.__file__).parent
    includes = [home / "include", home / "include/torch/csrc/api/include", sysconfig.get_paths()["include"]]
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)  # pylint: disable=protected-access # cpp_extension takes it, too
    compiling = [f"-std={standard}", "-O2", "-g0", "-fPIC", "-shared", "-w", "-fvisibility=hidden",
                 "-DTORCH_EXTENSION_NAME=_C", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", f"-I{package}/include",
                 *(f"-isystem{folder}" for folder in includes), f"-I{SOURCES}"]
    # exclude-libs: where the compiler links libstdc++.a, torch's libstdc++ must not take the place of parts of it.
    linking = ["-Wl,--exclude-libs,ALL", f"-L{home}/lib", "-ltorch", "-ltorch_cpu", "-ltorch_python", "-lc10",
               f"-Wl,-rpath,{home}/lib", f"{package}/lib/libtutti.so.0", f"-Wl,-rpath,{package}/lib"]
    return _compiled.Library("torch", torch.__version__, "its backend", SOURCES, compiling, linking, "_C.so",
                             sysconfig.get_config_var("EXT_SUFFIX"))


def load():
    """The module."""
    path = str(library().path())
    loader = importlib.machinery.ExtensionFileLoader("tutti_torch._C", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(loader.name, path, loader=loader))
    loader.exec_module(module)
    sys.modules[loader.name] = module
    return module
