"""The page that sets CS336's figures beside ours, in both languages: its tables are what tools/course-figures writes,
and every command of them can be typed.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from ringside.program import find_program

ROOT = Path(__file__).resolve().parent.parent.parent
TOOL = [sys.executable, ROOT / "tools/course-figures"]
BUILD = Path(find_program()).resolve().parent.parent
PAGES = ("cs336.md", "cs336.zh.md")
TABLES = "first_call all_reduce ddp share memory step accounting".split()
TABLE = re.compile(r"<!-- figures: (\w+) -->(.*?)<!-- end of figures -->", re.DOTALL)


def run(*arguments):
    done = subprocess.run([*TOOL, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copies(folder):
    for file in (ROOT / "docs").glob("cs336*"):
        shutil.copy(file, folder)
    return ["--pages", folder]


def test_the_tables_of_the_course_are_what_their_tool_writes(tmp_path):
    run("--write", *copies(tmp_path))
    for name in PAGES:
        there = (ROOT / "docs" / name).read_text()
        assert (tmp_path / name).read_text() == there, "write it: tools/course-figures --write"


def test_every_command_of_the_course_can_be_typed():
    told = run("--type", "--build", BUILD)
    assert int(re.search(r"course-figures: (\d+) commands", told)[1]) >= 30, told


def test_a_command_in_one_language_only_is_an_error(tmp_path):
    copies(tmp_path)
    page = tmp_path / "cs336.zh.md"
    page.write_text(page.read_text().replace("step context -n 4`", "step context -n 2`"))
    done = subprocess.run([*TOOL, "--type", "--pages", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "course-figures: only one of cs336.md and cs336.zh.md has: "
        "ringside step context -n 2; ringside step context -n 4\n"
    )


def test_figures_are_measured_and_stand_in_both_pages(tmp_path):
    run("--small", "--build", BUILD, *copies(tmp_path))
    stored = json.loads((tmp_path / "cs336.json").read_text())
    assert all(row["wrong"] == 0 for row in stored["figures"]["all_reduce"])
    for name, here in zip(PAGES, (", here", "，本机")):
        tables = dict(TABLE.findall((tmp_path / name).read_text()))
        assert list(tables) == TABLES
        for table, text in tables.items():
            assert stored["machine"] in text and stored["date"] in text, table
            assert table == "accounting" or here in text, text
            rows = [line for line in text.splitlines() if line.startswith("|")]
            assert len({row.count("|") for row in rows}) == 1, text
        right = re.findall(r"\*\*([\d.]+)\*\*", tables["accounting"])
        assert right == "44 38 61 319.4 395.3 61.3".split()
