"""stubs.py STUB: the stub of tutti._tutti has what the module has: classes, functions, their parameters and which of
these have defaults. Run in the environment of the wheel."""
import ast
import pathlib
import re
import sys

import tutti
from tutti import _tutti


def stubs(path):
    """name -> parameters, or None for what has none. An overload's parameters are those of the last one."""
    found = {}

    def read(body, prefix):
        for node in body:
            if isinstance(node, ast.ClassDef):
                found[prefix + node.name] = None
                read(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef) and not re.match("_(?!_)", node.name):
                isproperty = any(getattr(d, "id", "") == "property" for d in node.decorator_list)
                found[prefix + node.name] = None if isproperty else parameters(node.args)
    read(ast.parse(path.read_text()).body, "")
    return found


def parameters(arguments):
    ordered = [a.arg for a in arguments.posonlyargs + arguments.args]
    return ordered + [a.arg for a in arguments.kwonlyargs] + ([arguments.kwarg.arg] if arguments.kwarg else [])


def module():
    found = {}

    def read(of, prefix):
        for name, value in vars(of).items():
            known = name in ("__init__", "__enter__", "__exit__", "__len__", "__await__")
            if name.startswith("_") and not known:
                continue
            found[prefix + name] = None
            if isinstance(value, type):
                read(value, f"{prefix}{name}.")
            elif callable(value) and not isinstance(value, property):
                found[prefix + name] = value
    read(_tutti, "")
    return found


def said(function):
    """The names of the parameters, as the first line of nanobind's documentation has them."""
    code = getattr(function, "__code__", None)
    if code is not None:
        return list(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount])
    line = re.match(r"\w+\((.*)\) ->", function.__doc__)[1]
    return [name for part in re.split(r",\s*(?![^\[(]*[\])])", line) for name in re.findall(r"^\**(\w+)", part)]


def main():
    written, there = stubs(pathlib.Path(sys.argv[1])), module()
    implied = {name for name in {**written, **there} if re.search(r"\.__(buffer|init)__$", name)}
    assert set(written) - implied == set(there) - implied, set(written) ^ set(there)
    undocumented = [name for name, value in there.items() if "__" not in name and callable(value) and not value.__doc__]
    assert not undocumented, undocumented
    for name, function in there.items():
        if written.get(name) is None or "__" in name or not callable(function):
            continue
        names = said(function)
        if name == "init":  # the stub lists the options
            continue
        assert written[name] == names, (name, written[name], names)
    assert set(tutti.__all__) <= set(dir(tutti))
    print(f"{len(there)} names")


main()
