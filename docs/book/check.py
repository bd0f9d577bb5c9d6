"""Checks the book: every page and file that it refers to is there, with its anchor, and nothing is
loaded from a network. Prints what is wrong, and exits 1 if anything is.

    docs/book/check.py build/book
"""
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("link", "href"), ("figure", "data-page")}


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.anchors, self.references = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.anchors.add(value)
            elif (tag, name) in LOADED or (tag, name) == ("a", "href"):
                self.references.append(((tag, name) in LOADED, value))


def findings(book):
    pages = {path: Page(path) for path in sorted(book.rglob("*.html"))}
    for path, page in pages.items():
        for is_loaded, reference in page.references:
            target, _, anchor = unquote(reference).partition("#")
            if ":" in target or target.startswith("//"):
                if is_loaded and not target.startswith("data:"):
                    yield f"{path.name} loads {reference}"
                continue
            file = (path.parent / target.split("?")[0]).resolve() if target else path
            if not file.exists():
                yield f"{path.name} refers to {reference}, which does not exist"
            elif anchor and file in pages and "figures" not in file.parts and anchor not in pages[file].anchors:
                yield f"{path.name} refers to {reference}, but {file.name} has no such anchor"
    for style in book.rglob("*.css"):
        if "url(http" in style.read_text() or "url(//" in style.read_text():
            yield f"{style.name} loads from a network"


found = list(findings(Path(sys.argv[1]).resolve()))
print(*(f"check.py: {finding}" for finding in found), sep="\n", end="\n" if found else "")
sys.exit(bool(found))
