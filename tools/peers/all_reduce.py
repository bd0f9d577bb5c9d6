#!/usr/bin/env python3
"""Compares all-reduce of fp32 over shared memory with that of each MPI on this machine.

    tools/peers/all_reduce.py [--ringside build/release/bin/ringside] [--backends shm]
                              [-n 2,4,6] [--bytes 4,64000,1000000,100000000] [--rounds 3]
                              [--mpi FOLDER]...

A process can load only one MPI. So mpi_all_reduce.c, which measures as `ringside bench all_reduce`
does, is compiled once for each MPI and runs as a program of its own. The script finds Debian's
Open MPI (libopenmpi-dev) and MPICH (libmpich-dev). A FOLDER with bin/mpicc and bin/mpirun has
another one:

    python3 -m venv /tmp/intel && /tmp/intel/bin/pip install impi-devel      # Intel MPI
    python3 -m venv /tmp/mpich && /tmp/mpich/bin/pip install mpich           # a new MPICH
    tools/peers/all_reduce.py --mpi /tmp/intel --mpi /tmp/mpich

Each round runs every contender once, so that a slow phase of the machine affects all. Prints
medians over the rounds of the time of a call, and of its ratio to the first contender's in the same
round. The row "limit" is what the same bytes take when they are only moved (`ringside bench
--help`). Ranks that outnumber the cores are bound to them in equal numbers, in every library; only
those of Ringside's tcp, which sleep, are not. An MPI whose ranks spin can take very long where
there are more ranks than cores: after --limit seconds its program is stopped, and what is missing
is "-".
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

from machine import machine

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mpi_all_reduce.c")
STOPPED = (124, 137)  # exit codes of timeout
OPEN_MPI_OPTIONS = ["--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]


def output_of(command, limit=600, **options):
    """What the command prints, or has printed when it is stopped after so many seconds."""
    done = subprocess.run(["timeout", "-k", "5", str(limit), *command], stdout=subprocess.PIPE,
                          text=True, **options)
    if done.returncode != 0 and done.returncode not in STOPPED:
        sys.exit(f"{sys.argv[0]}: exit code {done.returncode} of: {' '.join(command)}")
    return done.stdout


class Mpi:
    """One MPI: its compiler, its mpirun, and mpi_all_reduce.c compiled with it."""

    def __init__(self, folder, compiler, mpirun, program, limit):
        # Intel's scripts ask for I_MPI_ROOT.
        self.environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}",
                            "I_MPI_ROOT": os.path.dirname(folder), "I_MPI_PIN": "off"}
        self.limit = limit
        output_of([compiler, "-O2", "-o", program, SOURCE], env=self.environment)
        version = output_of([mpirun, "--version"], env=self.environment).splitlines()[0]
        open_mpi = "Open" in version  # (Open MPI) or (OpenRTE); the others say HYDRA
        self.options, self.mpirun, self.program = open_mpi * OPEN_MPI_OPTIONS, mpirun, program
        named = re.sub(r"\(R\)|Version:|Library|for .*|,.*|\bv(?=\d)", "", self.measure(1, [])[0])
        self.name = " ".join(named.split())  # "Open MPI 4.1.4"

    def measure(self, ranks, sizes):
        command = [self.mpirun, "-n", str(ranks), *self.options, self.program, *sizes]
        return output_of(command, self.limit, env=self.environment).splitlines()

    def run(self, ranks, sizes):
        """bytes -> microseconds."""
        rows = [line.split() for line in self.measure(ranks, sizes)]
        rows = [row for row in rows if len(row) == 3 and row[0] in sizes]  # mpirun talks as well
        if any(wrong != "0" for _, _, wrong in rows):
            sys.exit(f"{self.name}: wrong elements: {rows}")
        return {size: float(microseconds) for size, microseconds, _ in rows}


class Ours:
    def __init__(self, ringside, backend):
        self.ringside, self.backend, self.name = ringside, backend, f"Ringside {backend}"
        self.limit = {}  # of the last run, as its times

    def run(self, ranks, sizes):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            output_of([self.ringside, "bench", "all_reduce", "-n", str(ranks), "--backends",
                       self.backend, "--bytes", ",".join(sizes), "--json", file.name])
            rows = json.load(file)
        self.limit = {str(row["bytes"]): row["time_us"] * row["busbw_gbps"] / row["limit_gbps"]
                      for row in rows}
        return {str(row["bytes"]): row["time_us"] for row in rows}


class Limit:
    """What the machine took in the last run of ours to move the same bytes and do nothing else."""

    def __init__(self, ours):
        self.ours, self.name = ours, f"  limit of {ours.backend}"

    def run(self, ranks, sizes):
        return self.ours.limit


def all_mpis(folders, programs, limit):
    found = [["/usr/bin", f"mpicc.{name}", f"mpirun.{name}"] for name in ("openmpi", "mpich")]
    found = [names for names in found if all(map(shutil.which, names[1:]))]
    for folder in (os.path.join(os.path.abspath(folder), "bin") for folder in folders):
        found.append([folder, os.path.join(folder, "mpicc"), os.path.join(folder, "mpirun")])
    return [Mpi(*names, os.path.join(programs, str(i)), limit) for i, names in enumerate(found)]


def measure(contenders, ranks, sizes, rounds):
    """By the name of a contender: its times, bytes -> microseconds, one for each round."""
    times = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            done = times[contender.name]
            if done and len(done[-1]) < len(sizes):
                continue  # it was stopped, and would be again
            done.append(contender.run(ranks, sizes))
    return times


def print_table(ranks, sizes, contenders, times):
    print(f"\n  {ranks} ranks, us" + " " * 11 + "".join(f"{int(size):>16,} B" for size in sizes))
    first = times[contenders[0].name]
    for contender in contenders:
        line = f"    {contender.name:<20}"
        for size in sizes:
            mine = [time[size] for time in times[contender.name] if size in time]
            if not mine:
                line += f"{'-':>10}{'':>8}"
                continue
            ratio = statistics.median(time / f[size] for time, f in zip(mine, first))
            line += f"{statistics.median(mine):>10.{2 * (mine[0] < 100)}f}"
            line += f"{ratio:>8.{2 * (ratio < 1000)}f}"
        print(line.rstrip(), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringside", default="build/release/bin/ringside")
    parser.add_argument("--backends", default="shm", help="backends of ringside bench")
    parser.add_argument("-n", "--ranks", default="2,4,6")
    parser.add_argument("--bytes", default="4,64000,1000000,100000000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=60, help="seconds for a program [60]")
    parser.add_argument("--mpi", action="append", default=[], metavar="FOLDER",
                        help="another MPI: bin/mpicc and bin/mpirun are in this folder")
    args = parser.parse_args()
    sizes = args.bytes.split(",")
    if not all(size.isdecimal() for size in sizes):
        parser.error(f"--bytes wants numbers without a unit, such as 4,64000, not {args.bytes}")
    with tempfile.TemporaryDirectory() as programs:
        ours = [Ours(args.ringside, name) for name in args.backends.split(",")]
        contenders = [row for each in ours for row in (each, Limit(each))]
        contenders += all_mpis(args.mpi, programs, args.limit)
        print(machine())
        print(f"all_reduce of fp32, medians of {args.rounds} rounds; beside each time its ratio to "
              f"{contenders[0].name}")
        for ranks in args.ranks.split(","):
            times = measure(contenders, ranks, sizes, args.rounds)
            print_table(ranks, sizes, contenders, times)


if __name__ == "__main__":
    main()
