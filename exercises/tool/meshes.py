"""Trainings on a mesh beside one process: after some steps parameters and gradients are the same, up to rounding."""
import array
import json
import re
import subprocess
import tempfile
from pathlib import Path

STEPS = 3
MOST = 1e-9  # in fp64
SAME = ["--steps", str(STEPS), "--dtype", "fp64", "--threads", "1", "--optimizer", "sgd", "--clip", "0", "--eval-batches", "1"]


def ranks_of(mesh):
    """8, for "dp=2,tp=2,pp=2"."""
    ranks = 1
    for size in re.findall(r"=(\d+)", mesh):
        ranks *= int(size)
    return ranks


def tensors_in(file):
    """{name: its numbers} of a safetensors file of fp64."""
    data = file.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = {name: each for name, each in json.loads(data[8:begin]).items() if name != "__metadata__"}
    return {name: array.array("d", data[begin + each["data_offsets"][0]:begin + each["data_offsets"][1]]) for name, each in header.items() if each["dtype"] == "F64"}


def difference(seen, expected):
    """(the largest difference, where it is) between the tensors of two runs."""
    far = {name: max(map(abs, map(float.__sub__, seen[name], expected[name]))) for name in seen}
    name = max(far, key=far.get)
    return far[name], name


class Trainings:
    """Of one model: `options` say which. The run of one process is made once."""

    def __init__(self, ringside, options):
        self.ringside, self.options = ringside, options
        self.single = self.trained()

    def trained(self, *options):
        """The tensors after the last step. Throws RuntimeError with what the program said."""
        with tempfile.TemporaryDirectory(prefix="ringside-mesh-") as folder:
            told = subprocess.run([self.ringside, "train", *SAME, *self.options, *options, "--dump", folder], capture_output=True, text=True)
            file = Path(folder, f"step{STEPS:04}.safetensors")
            if told.returncode != 0 or not file.exists():
                raise RuntimeError(told.stderr.strip() or f"exit status {told.returncode}, and no {file.name}")
            return tensors_in(file)

    def compared(self, mesh, *options):
        """(number of tensors, the largest difference, where it is) between a run on the mesh and one process."""
        seen = self.trained("--ranks", str(ranks_of(mesh)), "--mesh", mesh, *options)
        if seen.keys() != self.single.keys():
            raise RuntimeError(f"other tensors than those of one process: {sorted(seen.keys() ^ self.single.keys())[:3]}")
        return len(seen), *difference(seen, self.single)
