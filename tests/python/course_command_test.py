"""`ringside course`: the exercises of the wheel ringside_course, here one of two exercises."""

import contextlib
import io
import os
import platform
from pathlib import Path

import pytest
from ringside.__main__ import main


@pytest.fixture
def package(tmp_path, monkeypatch):
    course = tmp_path / "site/ringside_course/course"
    for name in ("01-ring/handout.en.md", "02-tree/handout.en.md", "measure/handout.en.md"):
        (course / name).parent.mkdir(parents=True)
        (course / name).write_text("# A handout\n")
    (course / ".ringside/tool/__pycache__").mkdir(parents=True)
    (course / ".ringside/tool/__pycache__/student.pyc").write_text("")
    (course / "exercise").write_text("#!/usr/bin/env python3\n")
    (course / "exercise").chmod(0o755)
    (course.parent / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    return course


def run(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["course", *words])
    return code, out.getvalue(), err.getvalue()


def test_the_course_of_the_wheel_is_copied(package, tmp_path):
    code, out, err = run("my-course")
    assert (code, err) == (0, "")
    assert out.startswith("wrote 2 exercises to my-course. Next: cd my-course && ./exercise\n")
    assert os.access("my-course/exercise", os.X_OK)
    copied = {str(path.relative_to("my-course")) for path in Path("my-course").rglob("*")}
    assert ".ringside/tool" in copied and "01-ring/handout.en.md" in copied
    assert not any("__pycache__" in path for path in copied)


def test_a_folder_with_files_is_refused_and_kept(package, tmp_path):
    Path("mine").mkdir()
    Path("mine/answer.py").write_text("kept")
    for name in ("mine", "mine/answer.py"):
        assert run(name) == (1, "", f"ringside: {name} is not empty: name a new folder\n")
    assert os.listdir("mine") == ["answer.py"]
    assert Path("mine/answer.py").read_text() == "kept"


def test_a_folder_that_cannot_be_written_is_named(package, tmp_path):
    code, out, err = run("/proc/course")
    assert (code, out) == (1, "")
    assert err == "ringside: cannot write /proc/course: No such file or directory\n"


def test_what_the_first_exercise_lacks_is_said(package, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run("bare")[1].splitlines()[1:] == [
        "c++, which compiles your code, is not installed: sudo apt-get install g++",
        "gdb, which debugs your code, is not installed: sudo apt-get install gdb",
    ]


def test_without_the_wheel_a_sentence_names_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    code, out, err = run("my-course")
    assert (code, out) == (1, "")
    assert err == (
        "ringside: the exercises are a wheel of their own, ringside_course, which needs glibc 2.35 and GCC 12 "
        "(Ubuntu 22.04 with g++-12, Debian 12), or newer. It is not installed: pip install "
        "ringside_course-...whl, of the release that this program is from\n"
    )
    assert not Path("my-course").exists()


def test_a_glibc_that_is_too_old_is_named(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.31"))
    code, out, err = run("my-course")
    assert (code, out) == (1, "")
    assert (
        "GCC 12 (Ubuntu 22.04 with g++-12, Debian 12), or newer; this machine has glibc 2.31: use a newer"
        in err
    )
