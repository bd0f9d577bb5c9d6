"""Makes chapters of the pages in docs/, which are plain Markdown for a repository host.

- docs/index.md: each list of links becomes a part of the table of contents.
- A comment `live:` above a picture becomes the page that its command writes (figures.py).
- A link that leaves docs/ becomes the path of the file in the repository.
"""
import re
import shutil
from html import escape
from pathlib import Path

from sphinx.errors import ExtensionError

import figures


def contents_of(text):
    """The tables of contents that the lists of docs/index.md stand for; pages that it does not name come last."""
    parts = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    pages = [re.findall(r"^[-0-9.]+ \[(.*?)\]\(([\w.]+)\.md\)", body, re.MULTILINE) for _, body in parts]
    listed = {"index"} | {name for part in pages for _, name in part}
    pages[-1] += [(None, page.stem) for page in sorted(figures.DOCS.glob("*.md")) if page.stem not in listed]
    trees = []
    for (caption, _), part in zip(parts, pages):
        entries = "\n".join(f"{title} <{name}>" if title else name for title, name in part)
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n")
    return "\n".join(trees)


def live(app, page):
    """Replaces a figure. Prints how many of all are done, which docs/build-book shows."""
    folder = Path(app.outdir) / "figures"
    total = sum(bool(figure["command"]) for page in figures.DOCS.glob("*.md") for figure in figures.FIGURE.finditer(page.read_text()))

    def component(figure):
        if not figure["command"]:
            return figure[0]
        try:
            written = figures.write_page(figure["command"], figures.DOCS.parent / "build/book-figures")
        except RuntimeError as error:
            raise ExtensionError(f"{page}: {error}") from error
        app.ringside_figures = getattr(app, "ringside_figures", 0) + 1
        print(f"[{app.ringside_figures}/{total}] {figure['command']}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        framed = figures.frame(written, figure["part"], folder)
        shutil.copy(figures.DOCS / figure["picture"], folder)
        address = f"figures/{framed.name}" + (f"#{figure['place']}" if figure["place"] else "")
        words = escape(figure["words"])
        return (f'<figure class="live" data-page="{address}">\n'
                f'<img src="figures/{figure["picture"]}" alt="{words}" />\n'
                f"<figcaption>{words}</figcaption>\n</figure>")

    return component


def outside(link):
    words, path = link[1], re.sub(r"^\.\./", "", link[2].split("#")[0])
    return f"`{path}`" if words.strip("`") == path else f"{words} (`{path}`)"


def transform(app, page, source):
    text = source[0]
    if page == "index":
        text += "\n" + contents_of(text)
    text = re.sub(r"^```math$", "```{math}", text, flags=re.MULTILINE)  # GitHub's form, and MyST's
    text = figures.FIGURE.sub(live(app, page), text)
    text = re.sub(r"\[([^\]]+)\]\((\.\./[^)]+)\)", outside, text)
    source[0] = re.sub(r"^<!--.*?-->\n", "", text, flags=re.MULTILINE | re.DOTALL)


def setup(app):
    app.connect("source-read", transform)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
