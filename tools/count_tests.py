#!/usr/bin/env python3
"""What Meson's tests did, in numbers of test cases.

  count_tests.py targets BUILD SUITE   the programs of a suite, and what they need, as Ninja targets
  count_tests.py count LOG             "<passed> <failed> <skipped>" from a testlog.json, a line per skip to stderr
  count_tests.py failures LOG          what failed, a few lines each: the end of a long output may show only warnings
  count_tests.py --self-test

A Catch2 program (version 2 or 3) counts its test cases; any other program is one. A program that fails without saying
how many cases failed (a crash, a time-out, a sanitizer's report) counts as one failed case. A Catch2 test case that
can't run here prints a line "skipped: <reason>" and returns: it counts as skipped, not as passed. Any other program
prints a line for each part that can't run. Exit code 77 skips a whole program.
"""
import json
import pathlib
import re
import sys


TELLS = re.compile(r": FAILED:|^FAILED|WARNING: ThreadSanitizer|ERROR: \w+Sanitizer|runtime error:|^Traceback|Error: ")


def catch2_cases(output):
    """(passed, failed, skipped) that Catch2's last line says, or None."""
    found = re.findall(r"^(?:All tests passed|test cases:.*)(?: \(.*\))?$", output, re.MULTILINE)
    if not found:
        return None
    if found[-1].startswith("All"):
        return int(re.search(r"in (\d+) test case", found[-1]).group(1)), 0, 0

    def number(what):
        match = re.search(r"(\d+) " + what, found[-1])
        return int(match.group(1)) if match else 0

    # "failed as expected" is [!shouldfail]: as good as passed.
    return (number("passed") + number("failed as expected"), number(r"failed(?! as)"), number("skipped"))


def count(test):
    """(passed, failed, skipped) of one record of testlog.json."""
    output = test.get("stdout") or ""
    result = test["result"]
    if result == "SKIP":
        return 0, 0, 1
    cases = catch2_cases(output)
    passed, failed, skipped = cases or (0, 0, 0)
    good = result in ("OK", "EXPECTEDFAIL")
    said = len(set(re.findall(r"^skipped: .*$", output, re.MULTILINE)))
    if cases:
        said = min(said, passed)
        passed -= said
    if good and passed + failed + skipped == 0:
        passed = 1
    skipped += said
    if not good:
        failed = max(failed, 1)
    return passed, failed, skipped


def skip_reasons(test):
    output = (test.get("stdout") or "") + (test.get("stderr") or "")
    reasons = sorted(set(re.findall(r"^skipped: .*$", output, re.MULTILINE)))
    if not reasons and test["result"] == "SKIP":
        reasons = ["skipped"]
    return [f"  {test['name']}: {reason}" for reason in reasons]


def failures(test):
    """The lines of a failed test that say why: of each failed assertion, and of a sanitizer's report."""
    if test["result"] in ("OK", "EXPECTEDFAIL", "SKIP"):
        return []
    why = [f"  {test['name']}: {test['result']}"]
    for stream in ("stdout", "stderr"):
        # Catch2 ends its blocks with a line of dots, sanitizers theirs with a SUMMARY.
        for block in re.split(r"^(?:\.{20,}|={20,}|SUMMARY: .*)$", test.get(stream) or "", flags=re.MULTILINE):
            lines = block.strip().splitlines()
            first = next((i for i, line in enumerate(lines) if TELLS.search(line)), None)
            if first is not None:
                why += lines[max(0, first - 10):first + 15] + ["  ..."]
    if len(why) == 1:
        why += ((test.get("stdout") or "") + (test.get("stderr") or "")).splitlines()[-15:]
    return why[:200]


def targets(build, suite):
    build = pathlib.Path(build).resolve()
    tests = json.loads((build / "meson-info/intro-tests.json").read_text())
    files = {t["id"]: t["filename"] for t in json.loads((build / "meson-info/intro-targets.json").read_text())}
    paths = set()
    for test in tests:
        if any(s.split(":")[-1] == suite for s in test["suite"]):
            paths.update(map(pathlib.Path, [test["cmd"][0]] + [f for t in test["depends"] for f in files[t]]))
    return sorted(str(path.relative_to(build)) for path in paths if build in path.parents)


def self_test():
    def case(result, stdout, expected):
        got = count({"result": result, "stdout": stdout})
        assert got == expected, (result, stdout, got, expected)

    case("OK", "", (1, 0, 0))
    case("FAIL", "", (0, 1, 0))
    case("TIMEOUT", "half a li", (0, 1, 0))
    case("SKIP", "skipped: no GPU", (0, 0, 1))
    case("OK", "All tests passed (12 assertions in 4 test cases)\n", (4, 0, 0))
    case("OK", "All tests passed (1 assertion in 1 test case)\n", (1, 0, 0))
    case("FAIL", "test cases:  5 |  3 passed | 2 failed\nassertions: 9 | 7 passed | 2 failed\n", (3, 2, 0))
    case("FAIL", "test cases: 1 | 1 failed\nassertions: - none -\n", (0, 1, 0))
    case("OK", "test cases: 4 | 3 passed | 1 failed as expected\n", (4, 0, 0))
    case("OK", "test cases: 3 | 2 passed | 1 skipped\n", (2, 0, 1))
    case("OK", "skipped: no netns\nAll tests passed (12 assertions in 4 test cases)\n", (3, 0, 1))
    case("OK", "skipped: prterun\nskipped: srun\n", (1, 0, 2))
    case("FAIL", "All tests passed (12 assertions in 4 test cases)\n", (4, 1, 0))  # a sanitizer's report at exit
    case("OK", "No tests ran\n", (1, 0, 0))

    said = "Two ranks meet\na_test.cpp:7: FAILED:\n  CHECK( a == b )\n" + "." * 79 + "\nwaits\n"
    assert failures({"name": "a", "result": "OK", "stdout": said}) == []
    why = failures({"name": "a", "result": "FAIL", "stdout": said, "stderr": "WARN: late\n" * 300})
    assert why[:4] == ["  a: FAIL"] + said.splitlines()[:3] and not any("WARN" in line for line in why), why
    report = "WARN: late\n" * 99 + "=" * 18 + "\nWARNING: ThreadSanitizer: data race\n  Write of size 4\n"
    why = failures({"name": "a", "result": "FAIL", "stderr": report})
    assert "  Write of size 4" in why and "WARNING: ThreadSanitizer: data race" in why, why
    assert failures({"name": "a", "result": "TIMEOUT", "stdout": "half a li"}) == ["  a: TIMEOUT", "half a li"]


def main(arguments):
    if arguments == ["--self-test"]:
        self_test()
    elif len(arguments) == 3 and arguments[0] == "targets":
        print("\n".join(targets(arguments[1], arguments[2])))
    elif len(arguments) == 2 and arguments[0] == "failures":
        for line in pathlib.Path(arguments[1]).read_text().splitlines():
            for said in failures(json.loads(line)):
                print(said)
    elif len(arguments) == 2 and arguments[0] == "count":
        totals = [0, 0, 0]
        for line in pathlib.Path(arguments[1]).read_text().splitlines():
            test = json.loads(line)
            totals = [a + b for a, b in zip(totals, count(test))]
            for reason in skip_reasons(test):
                print(reason, file=sys.stderr)
        print(*totals)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
