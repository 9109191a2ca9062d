#!/usr/bin/env python3
"""Whether Meson's tests did what they should, in numbers of test cases.

  count_tests.py targets BUILD SUITE           the programs of a suite, and what they need, as Ninja targets
  count_tests.py judge BUILD STATUS ARGUMENTS  judges `meson test ARGUMENTS`, which ended with STATUS and left its log
                                               in BUILD. Prints "<passed> <failed> <skipped>", then a few lines about
                                               everything that failed (the end of a long output may show only
                                               warnings); to stderr a line per skip.
  count_tests.py --self-test

Every test that `meson test --list ARGUMENTS` names must be in the log, and there must be one. What is not in the log
has failed; so has the whole if the log ends within a record, or if no test explains STATUS.

A test of the suite "catch2" counts its test cases (Catch2 2 or 3), a script its unittests; any other program is one
case. A Catch2 program is asked how many cases it has, and those that did not run have failed: it may end early with
exit code 0. A program that fails without saying how many cases failed (a time-out, a sanitizer's report) counts as one.

What can't run here is skipped, case by case: by skip() of harness/skip.hpp or by skipTest() of unittest. Any other
program prints a line "skipped: <reason>" for each part that it leaves out, or ends with 77 if that is all of it.

No test may be `should_fail`: Meson takes a crash for the failure that was expected. A test that expects a failure looks
at the exit code, and at what was said.
"""
import collections
import json
import pathlib
import re
import subprocess
import sys


TELLS = re.compile(r": FAILED:|^FAILED|WARNING: ThreadSanitizer|ERROR: \w+Sanitizer|runtime error:|^Traceback|Error: ")
SKIPPED = re.compile(r"^skipped: .*$|^test\w+ \(.*\)(?:\n.*)? \.\.\. skipped .*$", re.MULTILINE)  # ours; unittest -v's


def is_catch2(test):
    """Meson's log has the suites in the name: "tutti:core+catch2 / base"."""
    return "catch2" in re.split(r"[:+]", test["name"].partition(" / ")[0])


def output_of(test):
    return (test.get("stdout") or "") + (test.get("stderr") or "")


def skips_of(output):
    return sorted(set(SKIPPED.findall(output)))


def catch2_cases(output):
    """(passed, failed, skipped) as Catch2's last line says; (0, 0, 0) without it."""
    found = re.findall(r"^(?:All tests passed|test cases:.*)(?: \(.*\))?$", output, re.MULTILINE)
    if not found:
        return 0, 0, 0
    if found[-1].startswith("All"):
        passed, failed, skipped = int(re.search(r"in (\d+) test case", found[-1]).group(1)), 0, 0
    else:
        passed, failed, skipped = (sum(map(int, re.findall(r"(\d+) " + what, found[-1])))
                                   for what in ("passed", "failed", "skipped"))
    said = min(len(skips_of(output)), passed)  # each names its case, which may have said it several times
    return passed - said, failed, skipped + said


def unittest_cases(output):
    """(passed, failed, skipped) as unittest's last lines say, or None."""
    found = re.findall(r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED|NO TESTS RAN)(.*)$", output, re.MULTILINE)
    if not found:
        return None
    said = {what: int(number) for what, number in re.findall(r"(\w+)=(\d+)", found[-1][1])}
    failed, skipped = said.get("failures", 0) + said.get("errors", 0), said.get("skipped", 0)
    return max(0, int(found[-1][0]) - failed - skipped), failed, skipped  # several parts of one test may fail


def count(test, listed=None):
    """(passed, failed, skipped) of a record of testlog.json. listed: how many cases a Catch2 program says it has."""
    output, result = output_of(test), test["result"]
    if result == "SKIP":
        return 0, 0, 1
    if is_catch2(test):
        passed, failed, skipped = catch2_cases(output)
        failed = max(failed, (listed or 1) - passed - skipped)
        good = passed + skipped == listed
    else:
        passed, failed, skipped = unittest_cases(output) or (int(result == "OK"), 0, len(skips_of(output)))
        good = passed + skipped > 0
    return passed, failed if good and result == "OK" else max(failed, 1), skipped


def skip_reasons(test):
    reasons = skips_of(output_of(test))
    if not reasons and test["result"] == "SKIP":
        reasons = output_of(test).splitlines()[:1] or ["skipped"]
    return [f"  {test['name']}: " + " ".join(reason.split()) for reason in reasons]


def failures(test, listed=None):
    """The lines of a failed test that say why: of each failed assertion, and of a sanitizer's report."""
    passed, failed, skipped = count(test, listed)
    if failed == 0:
        return []
    why = [f"  {test['name']}: {test['result']}"]
    if test["result"] == "EXPECTEDFAIL":
        why.append("  it is should_fail: a crash would pass. Look at the exit code, and at what was said")
    elif test["result"] == "OK":
        why.append(f"  {passed + skipped} cases ran" + (f" of {listed}" if listed is not None else ""))
    known = len(why)
    for stream in ("stdout", "stderr"):
        # Catch2 ends its blocks with a line of dots, sanitizers theirs with a SUMMARY.
        for block in re.split(r"^(?:\.{20,}|={20,}|SUMMARY: .*)$", test.get(stream) or "", flags=re.MULTILINE):
            lines = block.strip().splitlines()
            first = next((i for i, line in enumerate(lines) if TELLS.search(line)), None)
            if first is not None:
                why += lines[max(0, first - 10):first + 15] + ["  ..."]
    if len(why) == known:
        why += output_of(test).splitlines()[-15:]
    return why[:200]


def ask(test, build):
    """How many cases a Catch2 program has for the arguments of its test; None: it does not say."""
    asked = subprocess.run([*test["command"], "--list-tests"], capture_output=True, text=True, check=False,
                           stdin=subprocess.DEVNULL, cwd=build)
    found = re.findall(r"^(\d+) (?:matching )?test cases?$", asked.stdout, re.MULTILINE)
    return int(found[-1]) if found else None


def judge(names, log, status, ask):
    """What tests of these names did: ([passed, failed, skipped], lines about failures, lines about skips)."""
    tests, totals, why, skips, beside = [], [0, 0, 0], [], [], []
    for line in log.splitlines():
        try:
            tests.append(json.loads(line))
        except json.JSONDecodeError:
            beside.append("Meson's log ends within a record")
    for test in tests:
        listed = ask(test) if is_catch2(test) and test["result"] != "SKIP" else None
        totals = [a + b for a, b in zip(totals, count(test, listed))]
        why += failures(test, listed)
        skips += skip_reasons(test)
    lost = collections.Counter(names) - collections.Counter(test["name"] for test in tests)
    beside += [f"{name}: it is not in Meson's log" for name in lost.elements()]
    if not names:
        beside.append("there is no test in this suite")
    if status != 0 and not why and not beside:
        beside.append(f"meson test ended with {status}, and no test says why")
    totals[1] += len(beside)
    return totals, ["  " + line for line in beside] + why, skips


def main_judge(build, status, *arguments):
    listed = subprocess.run(["meson", "test", "-C", build, "--no-rebuild", "--list", *arguments], text=True,
                            stdout=subprocess.PIPE, check=False)  # with exit code 1 if there are none
    logs = sorted(pathlib.Path(build, "meson-logs").glob("testlog*.json"))
    totals, why, skips = judge(listed.stdout.splitlines() if listed.returncode == 0 else [],
                               "".join(log.read_text() for log in logs), int(status), lambda test: ask(test, build))
    print("\n".join(skips), file=sys.stderr, end="\n" * bool(skips))
    print(*totals)
    print("\n".join(why), end="\n" * bool(why))


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
    def case(result, stdout, expected, listed=None):
        name = "t:core / a" if listed is None else "t:core+catch2 / a"
        got = count({"name": name, "result": result, "stdout": stdout}, listed)
        assert got == expected, (result, stdout, listed, got, expected)

    case("OK", "", (1, 0, 0))
    case("FAIL", "", (0, 1, 0))
    case("EXPECTEDFAIL", "", (0, 1, 0))
    case("TIMEOUT", "half a li", (0, 1, 0))
    case("SKIP", "no GPU", (0, 0, 1))
    case("OK", "skipped: prterun\nskipped: srun\n", (1, 0, 2))

    case("OK", "All tests passed (12 assertions in 4 test cases)\n", (4, 0, 0), 4)
    case("OK", "All tests passed (1 assertion in 1 test case)\n", (1, 0, 0), 1)
    case("FAIL", "test cases:  5 |  3 passed | 2 failed\nassertions: 9 | 7 passed | 2 failed\n", (3, 2, 0), 5)
    case("FAIL", "test cases: 1 | 1 failed\nassertions: - none -\n", (0, 1, 0), 1)
    case("OK", "test cases: 3 | 2 passed | 1 skipped\n", (2, 0, 1), 3)
    case("OK", "skipped: a: no IPv6\nskipped: b: no IPv6\nAll tests passed (9 assertions in 4 test cases)\n",
         (2, 0, 2), 4)
    case("FAIL", "All tests passed (12 assertions in 4 test cases)\n", (4, 1, 0), 4)  # a sanitizer's report at exit
    case("OK", "All tests passed (12 assertions in 4 test cases)\n", (4, 3, 0), 7)
    case("OK", "it ended early, with exit code 0\n", (0, 7, 0), 7)
    case("FAIL", "", (0, 7, 0), 7)
    case("OK", "No test cases matched 'renamed*'\n\nNo tests ran\n", (0, 1, 0), 0)

    case("OK", "Ran 7 tests in 0.1s\n\nOK\n", (7, 0, 0))
    case("OK", "test_a (__main__.A.test_a)\nWhat. ... skipped 'no nft'\nRan 7 tests in 0.1s\n\nOK (skipped=2)\n",
         (5, 0, 2))
    case("FAIL", "Ran 7 tests in 0.1s\n\nFAILED (failures=1, errors=1, skipped=2)\n", (3, 2, 2))
    case("OK", "Ran 0 tests in 0.000s\n\nOK\n", (0, 1, 0))

    said = "Two ranks meet\na_test.cpp:7: FAILED:\n  CHECK( a == b )\n" + "." * 79 + "\nwaits\n"
    assert failures({"name": "a", "result": "OK", "stdout": said}) == []
    why = failures({"name": "a", "result": "FAIL", "stdout": said, "stderr": "WARN: late\n" * 300})
    assert why[:4] == ["  a: FAIL"] + said.splitlines()[:3] and not any("WARN" in line for line in why), why
    report = "WARN: late\n" * 99 + "=" * 18 + "\nWARNING: ThreadSanitizer: data race\n  Write of size 4\n"
    why = failures({"name": "a", "result": "FAIL", "stderr": report})
    assert "  Write of size 4" in why and "WARNING: ThreadSanitizer: data race" in why, why
    assert failures({"name": "a", "result": "TIMEOUT", "stdout": "half a li"}) == ["  a: TIMEOUT", "half a li"]

    good = json.dumps({"name": "a", "result": "OK"}) + "\n"
    for names, log, status, expected in ((["a"], good, 0, [1, 0, 0]), (["a", "b"], good, 137, [1, 1, 0]),
                                         (["a", "b"], good + good[:9], 137, [1, 2, 0]), (["a"], "", 137, [0, 1, 0]),
                                         (["a"], good, 1, [1, 1, 0]), ([], "", 0, [0, 1, 0])):
        totals, why, _ = judge(names, log, status, ask=None)
        assert totals == expected and bool(why) == bool(expected[1]), (names, log, status, totals, why)


def main(arguments):
    if arguments == ["--self-test"]:
        self_test()
    elif len(arguments) == 3 and arguments[0] == "targets":
        print("\n".join(targets(arguments[1], arguments[2])))
    elif len(arguments) >= 3 and arguments[0] == "judge":
        main_judge(*arguments[1:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
