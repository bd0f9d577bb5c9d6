"""A table of figures, written once and read by all: people at a terminal, other programs (JSON), a
page (report.py).

    table = Table([words("axis", "axis"), Column("ms", "seconds", scaled(1e3))])
    table.rows.append(["tp", 0.0012])

    table.text()      axis     ms
                      tp    1.200
    table.json()      [{"axis": "tp", "seconds": 0.0012}]
"""

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional


@dataclass(frozen=True)
class Column:
    """`title` has its unit; without a title only JSON has the column. `key` has its unit; without
    a key JSON lacks the column."""

    title: Optional[str]
    key: str = ""
    show: Optional[Callable[[float], str]] = None
    width: int = 0  # at least so wide
    to_the_left: bool = False

    def shown(self, value: Any) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        if isinstance(value, bool):
            return "yes" if value else "no"
        if self.show:
            return self.show(float(value))
        return str(value) if isinstance(value, int) else f"{value:g}"


def words(title: str, key: str = "", width: int = 0) -> Column:
    return Column(title, key, None, width, True)


def only_in_json(key: str) -> Column:
    return Column(None, key)


@dataclass
class Table:
    head: List[Column]
    rows: List[List[Any]] = field(default_factory=list)  # a cell for each column
    indent: int = 2  # spaces in the terminal

    def _columns(self) -> List[Column]:
        return [column for column in self.head if column.title is not None]

    def _shown(self, row: List[Any]) -> List[str]:
        return [
            column.shown(cell) for column, cell in zip(self.head, row) if column.title is not None
        ]

    def text(self) -> str:
        """For a terminal. Each column is as wide as its widest cell."""
        columns = self._columns()
        titles = [(column.title or "").split("\n") for column in columns]
        height = max(map(len, titles))
        lines = [[title[i] if i < len(title) else "" for title in titles] for i in range(height)]
        lines += [self._shown(row) for row in self.rows]
        widths = [
            max([column.width, *(len(line[i]) for line in lines)])
            for i, column in enumerate(columns)
        ]
        return "".join(
            (
                " " * self.indent
                + "  ".join(
                    cell.ljust(width) if column.to_the_left else cell.rjust(width)
                    for cell, column, width in zip(line, columns, widths)
                )
            ).rstrip()
            + "\n"
            for line in lines
        )

    def shown(self) -> Dict[str, Any]:
        """For a page: titles in one line, and cells as people read them."""
        return {
            "columns": [
                {"title": (column.title or "").replace("\n", " "), "words": column.to_the_left}
                for column in self._columns()
            ],
            "rows": [self._shown(row) for row in self.rows],
        }

    def json(self) -> List[Dict[str, Any]]:
        """An object for each row: the cells of columns with a key."""
        return [
            {column.key: cell for column, cell in zip(self.head, row) if column.key}
            for row in self.rows
        ]
