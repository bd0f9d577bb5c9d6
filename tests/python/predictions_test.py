"""docs/predictions.md is what tools/predictions writes, and its figures stay as near to the published
ones as they are.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs/predictions.md").read_text(encoding="utf-8")


def rows_of(title):
    """The columns of each row of the tables between two headings of the page."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return [
        line[2:].split("|")
        for line in section.splitlines()
        if line.startswith("| ") and not line.startswith("| |")
    ]


def test_the_page_of_predictions_is_what_its_tool_writes():
    done = subprocess.run(
        [sys.executable, ROOT / "tools/predictions"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == PAGE, "write it again: tools/predictions >docs/predictions.md"


def test_published_figures_are_met_as_the_page_says():
    for title, count, low, high in (
        ("All-reduce by NCCL", 5, 0.9, 1.1),
        ("Llama 3 405B", 3, 0.93, 1.3),
        ("Megatron: ten models on A100", 10, 0.95, 1.12),
        ("Steps of GPT models on A100", 8, 0.94, 1.05),
        ("FSDP from 125 million to 70 billion parameters", 30, 1, 1.5),
        ("Activations of GPT models", 8, 0.99, 1.01),
        ("ZeRO: the state of 7.5 billion parameters on 64 ranks", 4, 0.99, 1.01),
        ("Parameters", 13, 0.97, 1.04),
    ):
        rows = rows_of(title)
        assert len(rows) == count, title
        assert all(low <= float(row[3].split()[0]) <= high for row in rows), (title, rows)
    for row in rows_of("Llama 3 405B")[:2]:  # sequences of 8,192 tokens: within 3 points
        assert abs(float(row[2].split()[0]) - float(row[1].split()[0])) < 3, row
    for model in ("1.3B", "3.6B", "8.9B"):
        said = PAGE.split(f"Rank correlation of the rows of {model}: ")[1]
        assert float(said.split()[0].rstrip(".,;")) >= 0.8, said[:20]
