"""The fastest right step: `ringside-exercises leaderboard`.

A submission is judged first; only one that is right in all cases, hidden worlds too, is measured. `ringside train` then runs
with the student's strategy and with Ringside's own bucketed one in turn, in the same sandbox. The figure of a round is
the student's tokens per second over those of the bucketed strategy; the median of the rounds counts. So submissions that
were measured at different times can be compared. A strategy that trains another model than the bucketed one is not ranked:
code that is right under the judge alone gains nothing.
"""
import csv
import re
import statistics
import subprocess

import kit as kits

BASELINE = "bucketed"
DEADLINE = 300  # seconds, for one training
NEAR = 0.002  # bits per byte: other orders of additions differ by less


def trained(kit, strategy, folder, options):
    """(tokens per second, bits per byte of the held-out text), or a RuntimeError that says what went wrong."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run([*kits.CONFINED, *kits.LIMITS, kit.ringside, "train", "--ranks", "2", "--parallel", str(strategy), *options],
                              cwd=folder, env=environment, capture_output=True, text=True, errors="replace", timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"the training did not come to an end in {DEADLINE} s") from None
    rates = re.findall(r"steps in \S+, ([\d.]+)([kM]?) tokens/s", done.stdout)
    held_out = re.findall(r"^held out ([\d.]+) bits per byte", done.stdout, re.M)
    if done.returncode != 0:
        raise RuntimeError(f"the training ended with exit status {done.returncode}: {done.stderr.strip()[-300:]}")
    if len(rates) != 1 or len(held_out) != 1:  # a submission may print such lines itself
        raise RuntimeError(f"the training printed its speed {len(rates)} times and the held-out loss {len(held_out)} times, expected each once")
    return float(rates[0][0]) * {"": 1, "k": 1e3, "M": 1e6}[rates[0][1]], float(held_out[0])


def measured(kit, exercise, code, folder, rounds, options):
    """{"ratios": [...]} of the rounds, or {"says": why there are none}."""
    try:
        library = kits.compile_strategy(kit, exercise, code, folder)
        library.chmod(0o755)
        ratios = []
        for _ in range(rounds):
            baseline, expected = trained(kit, BASELINE, folder, options)
            rate, seen = trained(kit, library, folder, options)
            if abs(seen - expected) > NEAR:
                return {"says": f"trains another model: {seen} bits per byte of the held-out text, {BASELINE} has {expected}"}
            ratios.append(rate / baseline)
        return {"ratios": ratios}
    except (RuntimeError, kits.Broken) as error:
        return {"says": str(error) if isinstance(error, RuntimeError) else f"{error.status}: {error.says[0]}"}


def row(student, exercise, result, speed):
    """A line of the table: the ratio is None for what is not ranked."""
    if speed is None:
        case = next((each for each in result["cases"] if each["status"] != "right"), {})
        return (None, student, exercise["id"], f"{result['status']}: {case.get('id', '')}: {(case.get('says') or [''])[0]}"[:150])
    if "says" in speed:
        return (None, student, exercise["id"], speed["says"])
    ratios = speed["ratios"]
    return (statistics.median(ratios), student, exercise["id"], f"{min(ratios):.3f} to {max(ratios):.3f} in {len(ratios)} rounds")


def written(rows, path):
    """The table, fastest first; also as a CSV file."""
    rows = sorted(rows, key=lambda each: (each[0] is None, -(each[0] or 0), each[1:3]))
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([("place", "student", "exercise", f"tokens per second over {BASELINE}", "note"),
                                    *((place if ratio else "", student, exercise, f"{ratio:.3f}" if ratio else "", note)
                                      for place, (ratio, student, exercise, note) in enumerate(rows, 1))])
    return "\n".join(f"{f'{place}.' if ratio else '-':>4} {f'{ratio:.3f}' if ratio else '':>6}  {student:<20} {exercise:<20} {note}"
                     for place, (ratio, student, exercise, note) in enumerate(rows, 1))
