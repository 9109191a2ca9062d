"""check_test.py CHECK: tools/check ends red when a test dies, a suite is empty, or a test crashes that was to fail
politely. The script itself runs, over a small project in the place of ours."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(sys.argv.pop(1))

PROJECT = """project('small')
run = find_program('./run')
test('cases', run, args: 'cases', suite: ['core', 'catch2'])
test('script', run, args: 'script', suite: 'core')
if get_option('gpu_architectures') == 'none'
  test('refuses', run, args: 'refuses', should_fail: true, suite: 'core')
endif
"""
OPTIONS = """option('gpu_architectures', type: 'string')
option('python', type: 'string')
option('gpu_bench', type: 'boolean')
option('precompiled', type: 'boolean')
option('room_units', type: 'boolean')
"""

# Of a stage that compiles what its tests need alone.
COMPILED = """project('small', 'cpp')
foreach name : ['a'%s]
  test(name, executable(name, 'a.cpp'), suite: 'core')
endforeach
add_test_setup('asan')
"""
COMPILED_OPTIONS = "".join(f"option('{name}', type: 'string')\n" for name in (
    "precompiled", "precompiled_library", "room_units", "bench", "cuda"))

# What each of the tests does, for each of what may happen to it. "cases" is what a Catch2 program looks like.
RUN = """#!/bin/sh
if [ "$2" = --list-tests ]; then
    echo '3 test cases'
    exit 3
fi
case $1-$(cat ../happens) in
cases-early) exit ;;
cases-killed) kill -9 $$ ;;
cases-renamed) echo "No tests ran" ;;
cases-meson-killed) kill -9 "$PPID" ;;
cases-skips) printf 'skipped: %s: no IPv6\\n' a b; echo 'All tests passed (9 assertions in 3 test cases)' ;;
cases-*) echo 'All tests passed (9 assertions in 3 test cases)' ;;
script-empty) printf 'Ran 0 tests in 0.0s\\n\\nOK\\n' >&2 ;;
script-skips)
    printf 'test_a (__main__.A.test_a) ... skipped "no nft"\\n' >&2
    printf 'Ran 4 tests in 0.0s\\n\\nOK (skipped=1)\\n' >&2
    ;;
script-*) printf 'Ran 4 tests in 0.0s\\n\\nOK\\n' >&2 ;;
refuses-*) kill -11 $$ ;;
esac
"""


class Check(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="tutti-check-")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        (cls.folder / "tools").mkdir()
        for name in ("check", "count_tests.py", "need.sh"):
            shutil.copy(CHECK.parent / name, cls.folder / "tools" / name)
        with open(cls.folder / "tools/need.sh", "a", encoding="utf-8") as script:
            script.write("need() { :; }\n")  # a test installs nothing
        (cls.folder / "run").write_text(RUN)
        (cls.folder / "run").chmod(0o755)
        (cls.folder / "meson_options.txt").write_text(OPTIONS)

    def check(self, happens, project=PROJECT):
        """(exit code, last line, all that was said)"""
        (self.folder / "happens").write_text(happens)
        if not (self.folder / "meson.build").exists() or (self.folder / "meson.build").read_text() != project:
            (self.folder / "meson.build").write_text(project)
            shutil.rmtree(self.folder / "build-check", ignore_errors=True)
        done = subprocess.run([self.folder / "tools/check", "release"], capture_output=True, text=True, check=False,
                              timeout=100)
        self.assertTrue(done.stdout, done.stderr)
        return done.returncode, done.stdout.splitlines()[-1], done.stdout + done.stderr

    def red(self, happens, counts, why, project=PROJECT):
        code, last, said = self.check(happens, project)
        self.assertEqual((code, last), (1, counts), said)
        self.assertIn(why, said.partition("What failed:")[2])

    def test_nothing_happens(self):
        code, last, said = self.check("nothing")
        self.assertEqual((code, last), (0, "7 passed, 0 failed, 0 skipped"), said)

    def test_skips_count_case_by_case(self):
        code, last, said = self.check("skips")
        self.assertEqual((code, last), (0, "4 passed, 0 failed, 3 skipped"), said)
        for why in "skipped: a: no IPv6", "skipped: b: no IPv6", "no nft":
            self.assertIn(why, said)

    def test_a_program_is_killed(self):
        self.red("killed", "4 passed, 3 failed, 0 skipped", "cases: FAIL")

    def test_a_program_ends_early(self):
        self.red("early", "4 passed, 3 failed, 0 skipped", "0 cases ran of 3")

    def test_meson_is_killed(self):
        self.red("meson-killed", "0 passed, 2 failed, 0 skipped", "cases: it is not in Meson's log")

    def test_the_cases_that_a_test_selects_are_renamed(self):
        self.red("renamed", "4 passed, 3 failed, 0 skipped", "0 cases ran of 3")

    def test_a_script_has_no_test(self):
        self.red("empty", "3 passed, 1 failed, 0 skipped", "0 cases ran")

    def test_a_suite_is_empty(self):
        self.red("nothing", "0 passed, 1 failed, 0 skipped", "there is no test in this suite",
                 PROJECT.partition("run =")[0])

    def test_a_crash_where_a_polite_failure_was_expected(self):
        self.red("nothing", "7 passed, 1 failed, 0 skipped", "refuses: EXPECTEDFAIL",
                 PROJECT.replace("'none'", "'90'"))

    def test_a_program_is_new_since_the_last_build(self):
        with tempfile.TemporaryDirectory(prefix="tutti-check-") as name:
            folder = pathlib.Path(name)
            shutil.copytree(self.folder / "tools", folder / "tools")
            (folder / "a.cpp").write_text("int main() {}\n")
            (folder / "meson_options.txt").write_text(COMPILED_OPTIONS)
            for more, passed in ("", 1), (", 'b'", 2):
                (folder / "meson.build").write_text(COMPILED % more)
                done = subprocess.run([folder / "tools/check", "asan"], capture_output=True, text=True, check=False,
                                      timeout=100)
                self.assertIn(f"{passed} passed, 0 failed", done.stdout, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
