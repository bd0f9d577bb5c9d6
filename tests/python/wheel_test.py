"""The wheels that tools/build-wheel has put into dist/: what is in them, what they need of a machine, and what
they run. Skipped where there are none."""

import base64
import csv
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = re.search(r"project\(ringside VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
MACHINES = {"x86_64": "X86-64", "aarch64": "AArch64"}  # as readelf names them
PROGRAMS = {"ringside/bin/ringside", "ringside/bin/ringside-bench"}
LIBRARIES = {
    "ringside/libringside.so",
    "ringside/lib/libringside_emulated.so",
    "ringside/lib/libscipy_openblas.so",
}
OF_OPENBLAS = r"lib(gfortran|quadmath)-\w+\.so[.\d]+"  # lie beside it
# What every glibc has, and of manylinux's list what libgfortran needs besides.
OF_SYSTEM = (
    r"(libc|libm|libdl|libpthread|librt|ld-linux-x86-64|ld-linux-aarch64|libz|libgcc_s)\.so\.\d"
)


def wheels(name="ringside"):
    found = sorted((ROOT / "dist").glob(f"{name}-*.whl"))
    if not found:
        pytest.skip("needs wheels in dist/: tools/build-wheel")
    return found


def architecture(wheel):
    return re.search(r"_(x86_64|aarch64)\.whl$", wheel.name)[1]


def names(wheel):
    return [name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")]


def about(wheel, name):
    return zipfile.ZipFile(wheel).read(f"ringside-{VERSION}.dist-info/{name}").decode()


def of_openblas(wheel):
    return {name for name in names(wheel) if re.fullmatch("ringside/lib/" + OF_OPENBLAS, name)}


def binaries(wheel, folder):
    """Unpacks a wheel, and gives its programs and libraries."""
    zipfile.ZipFile(wheel).extractall(folder)
    return {
        name: str(Path(folder, name)) for name in sorted(PROGRAMS | LIBRARIES | of_openblas(wheel))
    }


def read(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def exported(binary):
    lines = read("readelf", "--dyn-syms", "--wide", binary).splitlines()
    symbols = [line.split() for line in lines if re.match(r" +\d+: ", line)]
    return {
        fields[7].split("@")[0] for fields in symbols if len(fields) > 7 and fields[6] != "UND"
    } - {"RINGSIDE_1"}


def test_its_name_says_what_it_runs_on():
    for wheel in wheels():
        assert re.fullmatch(
            rf"ringside-{re.escape(VERSION)}-py3-none-manylinux_2_28_(x86_64|aarch64)\.whl",
            wheel.name,
        )
        assert wheel.stat().st_size <= 40_000_000


def test_its_metadata_is_that_of_the_package():
    for wheel in wheels():
        metadata = Parser().parsestr(about(wheel, "METADATA"))
        assert (metadata["Name"], metadata["Version"]) == ("ringside", VERSION)
        assert metadata["Requires-Python"] == ">=3.9"
        assert metadata["Requires-Dist"] is None  # pip installs it without a network
        kind = Parser().parsestr(about(wheel, "WHEEL"))
        assert kind["Root-Is-Purelib"] == "false"
        assert kind.get_all("Tag") == [f"py3-none-manylinux_2_28_{architecture(wheel)}"]
        entry_points = about(wheel, "entry_points.txt")
        assert "ringside = ringside.__main__:script" in entry_points
        assert "ringside = ringside.torch_backend:register" in entry_points


def test_it_holds_the_package_the_programs_and_the_licences():
    for wheel in wheels():
        present = set(names(wheel))
        package = {
            str(file.relative_to(ROOT / "python"))
            for file in (ROOT / "python/ringside").rglob("*")
            if file.suffix in (".py", ".json", ".html", ".css", ".js")
        }
        assert package | PROGRAMS | LIBRARIES | {"ringside/text/libc++.txt"} <= present
        others = present - package - PROGRAMS - LIBRARIES - of_openblas(wheel)
        others -= {"ringside/text/libc++.txt"}
        assert {name.split("/")[0] for name in others} == {f"ringside-{VERSION}.dist-info"}
        licences = {Path(name).name for name in others}
        for library in ("libc++", "OpenBLAS", "libssl-dev", "libboost-dev", "libfmt-dev"):
            assert f"LICENSE-{library}" in licences
        assert {"LICENSE", "NOTICE"} <= licences
        for name in PROGRAMS:
            assert zipfile.ZipFile(wheel).getinfo(name).external_attr >> 16 & 0o111 == 0o111


def test_its_record_has_each_file():
    for wheel in wheels():
        record = {line[0]: line[1] for line in csv.reader(about(wheel, "RECORD").splitlines())}
        assert set(record) == set(names(wheel))
        for name, digest in record.items():
            if name.endswith("/RECORD"):
                continue
            seen = hashlib.sha256(zipfile.ZipFile(wheel).read(name)).digest()
            assert digest == "sha256=" + base64.urlsafe_b64encode(seen).decode().rstrip("=")


def test_it_needs_glibc_2_28_and_nothing_else():
    for wheel in wheels():
        with tempfile.TemporaryDirectory() as folder:
            for name, binary in binaries(wheel, folder).items():
                machine = re.search(r"Machine: +(.*)", read("readelf", "--file-header", binary))[1]
                assert MACHINES[architecture(wheel)] in machine, name
                dynamic = read("readelf", "--dynamic", binary)
                needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
                own = {"libscipy_openblas.so"} if name in PROGRAMS else set()
                assert own <= needed, name
                for library in needed - own:
                    if re.fullmatch(OF_OPENBLAS, library):
                        assert f"ringside/lib/{library}" in names(wheel), library
                    else:
                        assert re.fullmatch(OF_SYSTEM, library), (name, library)
                if name in PROGRAMS:
                    assert re.findall(r"\(RUNPATH\).*\[(.*)\]", dynamic) == ["$ORIGIN/../lib"]
                versions = re.findall(r"GLIBC_2\.(\d+)", read("readelf", "--version-info", binary))
                assert max(map(int, versions)) <= 28, name


def test_its_copies_are_those_of_glibc():
    """Zig's own memcpy() made an all-reduce of 1 MB over shm 1.3 times as long."""
    for wheel in wheels():
        with tempfile.TemporaryDirectory() as folder:
            for name, binary in binaries(wheel, folder).items():
                if name in PROGRAMS or name == "ringside/libringside.so":
                    symbols = read("readelf", "--dyn-syms", "--wide", binary)
                    for function in ("memcpy", "memmove", "memset", "memcmp"):
                        assert re.search(rf"UND {function}@GLIBC_2", symbols), (name, function)


def test_its_library_exports_the_c_interface_alone():
    header = (ROOT / "collectives/c_interface/ringside.h").read_text()
    functions = set(re.findall(r"\b(ringside_\w+)\(", header))
    for wheel in wheels():
        with tempfile.TemporaryDirectory() as folder:
            found = exported(binaries(wheel, folder)["ringside/libringside.so"])
            # Called by the loader: base/system/processor.cpp.
            assert found - {"ringside_require_processor"} <= functions
            assert "ringside_all_reduce" in found


def test_its_programs_export_what_is_of_ringside():
    """A library that they open, as NCCL, must find neither their libc++ nor their libcrypto."""
    for wheel in wheels():
        with tempfile.TemporaryDirectory() as folder:
            for name, binary in binaries(wheel, folder).items():
                if name in PROGRAMS:
                    found = exported(binary)
                    assert any("ringside" in symbol for symbol in found)
                    assert [s for s in found if "ringside" not in s] == [], name
                if "emulated" in name:
                    assert exported(binary) == {"ringside_emulated_kernels"}


def wheel_of_this_machine(name="ringside"):
    for wheel in wheels(name):
        if architecture(wheel) == platform.machine():
            return wheel
    pytest.skip(f"needs the wheel for {platform.machine()}: tools/build-wheel")


def vector_bits_of_linux():
    """Zig's compiler cannot ask: __builtin_cpu_supports() is false there."""
    flags = re.search(r"^flags.*", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    if not flags:
        return 0
    words = set(flags[0].split())
    return 512 if {"avx512f", "avx512vl"} <= words else 256


def new_environment(folder):
    """A virtual environment, and the variables of a program in it: none that names another build."""
    read(sys.executable, "-m", "venv", f"{folder}/v")
    return {"PATH": f"{folder}/v/bin:/usr/bin:/bin", "HOME": folder}


def test_it_runs_where_pip_has_installed_it():
    wheel = wheel_of_this_machine()
    with tempfile.TemporaryDirectory() as folder:
        environment = new_environment(folder)
        read(f"{folder}/v/bin/pip", "install", "--quiet", "--no-index", str(wheel))

        def run(*words):
            seen = subprocess.run(
                words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
            )
            assert seen.returncode == 0, (words, seen.stderr)
            return seen.stdout

        assert run("ringside", "--version").startswith(f"ringside {VERSION}")
        trained = run("ringside", "train", "-n", "2", "--steps", "2", "--batch", "2")
        assert "site-packages/ringside/text" in trained
        assert "step 2" in trained or re.search(r"^ *2 ", trained, re.MULTILINE)
        assert "rank 3" in run("ringside", "step", "all_reduce", "-n", "4")
        run("ringside", "prove", "ring_all_reduce", "-n", "4")
        measured = run(
            "ringside", "bench", "train", "--model", "tiny", "--steps", "1", "--json", "-"
        )
        assert json.loads(measured)[0]["vector_bits"] == vector_bits_of_linux()
        # Python by the script, by the program, and from Python.
        plan = ("account", "--model", "tiny", "--mesh", "dp=2")
        program = run(
            f"{folder}/v/bin/python",
            "-c",
            "from ringside import program as p\nprint(p.find_program())",
        ).strip()
        assert os.path.realpath(program).startswith(os.path.realpath(folder))
        assert run("ringside", *plan) == run(program, *plan)
        assert "train" in run("ringside", "help") and "account" in run("ringside", "help")
        # Without the environment's folder on PATH, too: the script knows its Python.
        environment["PATH"] = "/nowhere"
        assert "857,216" in run(f"{folder}/v/bin/ringside", *plan)


def test_the_course_of_its_wheel_is_judged():
    wheel, course = wheel_of_this_machine(), wheel_of_this_machine("ringside_course")
    assert (
        course.name
        == f"ringside_course-{VERSION}-py3-none-manylinux_2_35_{architecture(wheel)}.whl"
    )
    if not shutil.which("c++"):
        pytest.skip("needs c++")
    with tempfile.TemporaryDirectory() as folder:
        environment = new_environment(folder)
        read(f"{folder}/v/bin/pip", "install", "--quiet", "--no-index", str(wheel), str(course))
        words = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
        written = subprocess.run(["ringside", "course", "mine"], **words)
        assert re.match(r"wrote \d+ exercises to mine\. Next: ", written.stdout), written.stderr
        checked = subprocess.run(["mine/exercise", "check", "00"], **words)
        assert "all_reduce_mean is not yet written" in checked.stdout, checked.stderr
        judge = f"{folder}/mine/.ringside/{architecture(wheel)}/ringside-judge"
        dynamic = read("readelf", "--dynamic", judge)
        assert "libscipy_openblas.so" in dynamic and "$ORIGIN/lib" in dynamic
        assert subprocess.run([judge], **words).returncode != 127  # the loader finds it


def test_the_notebook_installs_it_and_runs():
    """As in Colab: the notebook and the wheel in one folder."""
    wheel = wheel_of_this_machine()
    with tempfile.TemporaryDirectory() as folder:
        environment = new_environment(folder)
        os.symlink(wheel, Path(folder, wheel.name))
        os.symlink(ROOT / "python/ring_to_ddp.ipynb", Path(folder, "ring_to_ddp.ipynb"))
        os.symlink(Path(__file__).with_name("notebook.py"), Path(folder, "notebook.py"))
        script = "from notebook import run_cells; run_cells('ring_to_ddp.ipynb'); import ringside; print(ringside.__file__)"
        seen = subprocess.run(
            [f"{folder}/v/bin/python", "-c", script],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert seen.returncode == 0, seen.stderr
        assert "site-packages/ringside" in seen.stdout.splitlines()[-1]
