"""Runs the code of a notebook without Jupyter."""

import ast
import contextlib
import io
import json
import os
import re
import tempfile
from pathlib import Path


def run_notebook(path):
    """Runs the cells in their order and in a folder of their own. Returns what each printed."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return run_cells(path)
        finally:
            os.chdir(before)


def run_cells(path, before=None):
    """Runs the cells up to the heading `before` in the current folder, and shows the value of a
    cell's last line as Jupyter does. Returns what each cell printed."""
    names, printed = {"__name__": "__main__"}, []
    for number, cell in enumerate(json.loads(Path(path).read_text())["cells"]):
        source = "".join(cell["source"])
        if before is not None and source.startswith(before):
            return printed
        if cell["cell_type"] == "code":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                run_cell(source, f"{Path(path).name}[{number}]", names)
            printed.append(out.getvalue())
    assert before is None, f"{path} has no heading {before!r}"
    return printed


def run_cell(source, name, names):
    # A line for the shell, as Jupyter has them.
    source = re.sub(
        "^!(.*)", lambda line: f"import os; os.system({line[1]!r})", source, flags=re.MULTILINE
    )
    tree = ast.parse(source, name)
    value = None
    if isinstance(tree.body[-1], ast.Expr):
        value = ast.Expression(tree.body.pop().value)
    exec(compile(tree, name, "exec"), names)
    if value is not None:
        shown = eval(compile(value, name, "eval"), names)
        if hasattr(shown, "_repr_html_"):
            assert shown._repr_html_(), name
        if shown is not None:
            print(repr(shown))
