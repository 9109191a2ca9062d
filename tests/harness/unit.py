#!/usr/bin/env python3
"""unit.py OUTPUT FILE...: joins test files into one, so that the compiler reads their headers once.

Includes go to the top. What remains of each file gets a namespace of its own, as files use the same names: around all
of it, or, where the file opens `namespace tutti` or one within, inside that. Lines keep their file and number.
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]*)"')
OPENS = re.compile(r'^namespace (tutti[\w:]*) \{', re.MULTILINE)


def joined(paths):
    includes, bodies = {}, []
    for path in paths:
        name = 'of_' + re.sub(r'\W', '_', '/'.join(path.parts[-2:]))
        body = []
        for line in path.read_text().split('\n'):
            if re.match(r'#\s*include', line):
                beside = INCLUDE.match(line)
                if beside and (path.parent / beside[1]).is_file():
                    line = f'#include "{path.parent / beside[1]}"'
                includes[line] = None
                line = ''
            body.append(line)
        text, inside = OPENS.subn(rf'namespace \1::{name} {{', '\n'.join(body))
        if not inside:
            text = f'namespace {name} {{\n#line 1 "{path}"\n{text}\n}}'
        bodies.append(f'#line 1 "{path}"\n{text}\n')
    return '\n'.join([*includes, *bodies])


def main():
    output, *paths = sys.argv[1:]
    pathlib.Path(output).write_text(joined([pathlib.Path(p).resolve() for p in paths]))


main()
