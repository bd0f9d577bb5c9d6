"""The figures of the chapters. A chapter names one in a comment above its picture:

    <!-- live: ringside step all_reduce -n 4 --html PAGE #all_reduce/ring/4/2 [play] -->
    ![Four ranks and their chunks](ring.svg)

PAGE is the page that the command writes. What follows # is where the page begins. The square brackets
name what to show of it: a word of PARTS below, or beginnings of the headings of its figures, with |
between them.

The picture stands for the page in the repository, on paper, and where scripts do not run. A second
comment says how it is made:

    <!-- still: ringside step all_reduce -n 4 --svg STILL -->      the command draws the picture
    <!-- still -->                                                 the same figures of the same page,
                                                                   as a browser draws them

A picture without a page has the second comment alone; drawings.py draws some of them. Called as a
program, this file draws all pictures; with --check it tells which are not what their command draws.
"""
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

import browse

DOCS = Path(__file__).resolve().parent.parent
PROGRAMS = DOCS.parent / "build/release/bin"
FIGURE = re.compile(r"(?:<!-- live: (?P<command>[^\n]*?)(?: #(?P<place>[^\s\[]*))?(?: \[(?P<part>[^\]\n]+)\])? -->\n)?"
                    r"(?:<!-- (?P<still>still[^\n]*) -->\n)?"
                    r"!\[(?P<words>[^\]]*)\]\((?P<picture>[^)]*)\)")

# What is left of a page of `ringside step`.
PARTS = {
    "play": "header, #costs, .keys, .choices { display: none; }",
    "timeline": "header, #costs, .keys, .choices, figure:has(#ring) { display: none; }",
    "timelines": "header, #costs, .keys, label:has(#family), figure:has(#ring) { display: none; }",
    "costs": "header, .choices, .controls, #says, .stage, .keys { display: none; }"
             " #costs { margin: 0; padding: 0; border: 0; }",
}
REPORT = ("body > dl, .apart-of-book { display: none !important; }"
          " figure { margin: 0 0 20px; border: 0; padding: 0; }")

# Shows what is wanted, tells the book how high the page is, and takes over whether it is dark or light.
FRAME = """<style>h1 { display: none; } body { padding: 2px; } %s</style>
<script>
const wanted = %s;
for (const part of wanted.length ? document.querySelectorAll('main > *, body > p') : []) {
  const heading = part.querySelector('h2')?.textContent || '';
  if (!wanted.some(words => heading.startsWith(words))) part.classList.add('apart-of-book');
}
const tellHeight = () =>
  parent.postMessage({ height: document.body.getBoundingClientRect().height }, '*');
new ResizeObserver(tellHeight).observe(document.body);  // does not run outside of the window
addEventListener('load', tellHeight);
addEventListener('message', ({ data: { theme } }) => {
  if (!theme) return;
  document.documentElement.style.colorScheme = theme;
  for (const sheet of document.styleSheets)
    for (const rule of sheet.cssRules)
      if (rule.depends || /prefers-color-scheme/.test(rule.media?.mediaText || '')) {
        rule.depends = true;
        rule.media.mediaText = theme === 'dark' ? 'screen' : 'not all';
      }
  dispatchEvent(new Event('resize'));
  tellHeight();
});
parent.postMessage({ ready: true }, '*');
</script>
"""


def run(command, folder):
    environment = {**os.environ, "PATH": f"{PROGRAMS}:{DOCS / 'book'}:{os.environ['PATH']}", "COLUMNS": "100",
                   "PYTHONPATH": str(PROGRAMS.parent / "python"), "XDG_CACHE_HOME": str(folder)}
    result = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode != 0:
        raise RuntimeError(f"`{command}` of a figure exits with {result.returncode}:\n{result.stdout}")


def write_page(command, folder):
    """The page of a figure, made once for each build of the program."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / (hashlib.sha256(command.encode()).hexdigest()[:12] + ".html")
    if not page.exists() or page.stat().st_mtime < (PROGRAMS / "ringside").stat().st_mtime:
        run(command.replace("PAGE", f"'{page}'"), folder)
    return page


def headings(part):
    return [] if part is None or part in PARTS else [words.strip() for words in part.split("|")]


def chosen(titles, part, page):
    """The places of the figures whose titles begin with the headings of `part`; of several with one heading the last."""
    places = []
    for words in headings(part):
        found = [i for i, title in enumerate(titles) if title.startswith(words)]
        if not found:
            raise RuntimeError(f"{page} has no figure with a heading that begins with '{words}'")
        places.append(found[-1])
    return places


def titles_of(page):
    """Of the figures of a report, which carries them as data."""
    data = re.search(r'<script type="application/json" id="report">(.*?)</script>', page.read_text(), re.DOTALL)
    return [figure["title"] for figure in json.loads(data[1])["figures"]] if data else []


def frame(page, part, folder):
    """A copy of the page that fits into a chapter."""
    name = re.sub(r"\W+", "-", part or "all")
    framed = folder / f"{page.stem}-{name}.html"
    chosen(titles_of(page), part, page)  # all are there
    head, foot = page.read_text().rsplit("</body>", 1)
    style = PARTS.get(part, REPORT)
    framed.write_text(f"{head}{FRAME % (style, json.dumps(headings(part)))}</body>{foot}")
    return framed


def drawing_of(figure, top):
    """The drawing of a figure, to be placed at this height, and where it ends."""
    if 'class="chart"' in figure:
        chart = re.search(r'<svg class="chart".*?</svg>', figure, re.DOTALL)[0]
        width, height = map(int, re.search(r'viewBox="0 0 (\d+) (\d+)"', chart).groups())
        return re.sub("<svg ", f'<svg x="0" y="{top}" width="{width}" height="{height}" ', chart, count=1), top + height
    drawn = [f'<text class="head" x="0" y="{top + 15}">{re.search("<h2>(.*?)</h2>", figure)[1]}</text>']
    top += 22
    lanes = re.search(r'<div class="lanes">(.*?)</div>', figure, re.DOTALL)[1]
    for piece in re.findall(r"<h3>.*?</h3>|<span.*?</span>|<svg.*?</svg>", lanes, re.DOTALL):
        text = re.sub(r"<[^>]*>", "", piece)
        if piece.startswith("<h3"):
            drawn.append(f'<text x="0" y="{top + 16}">{text}</text>')
            top += 22 if len(text) > 8 else 0  # beside the name of its lane, or above
        elif 'class="lane-name"' in piece:
            drawn.append(f'<text class="soft" x="62" y="{top + 18}">{text}</text>')
        elif piece.startswith("<svg"):
            drawn.append(re.sub("<svg ", f'<svg x="180" y="{top}" width="560" height="28" ', piece, count=1))
            top += 30
        elif 'class="axis"' in piece:
            drawn.append(f'<text class="soft" x="180" y="{top + 8}">{text}</text>')
            top += 18
    return "\n".join(drawn), top + 8


# What moves in a page, and what is seen only when it is zoomed in, is no part of a picture.
STAND_STILL = "<script>for (const part of document.querySelectorAll('.details, .arrows')) part.remove();</script>"


def drawn_page(page):
    """The page after its script has drawn it."""
    browser = browse.installed_browser()
    if browser is None:
        raise RuntimeError("the stills of reports are drawn by a browser: install one (apt-get install chromium)")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "page.html")
        copy.write_text(page.read_text().replace("</body>", STAND_STILL + "</body>"))
        return subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/browser",
                               "--dump-dom", copy.as_uri()], env={**os.environ, "HOME": folder}, text=True, check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def still_of(page, part):
    """The figures of a report as a picture of its own, in the colours of the page."""
    text, top, drawn = drawn_page(page), 4, []
    figures = re.findall(r"<figure.*?</figure>", text, re.DOTALL)
    found = [figures[place] for place in chosen(titles_of(page), part, page)]
    for figure in found:
        drawing, top = drawing_of(figure, top)
        drawn.append(drawing)
    style = "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL))
    hatch = re.search(r"<defs>.*?</defs>", text, re.DOTALL)
    width = 460 if all('class="chart"' in figure for figure in found) else 752
    title = escape(re.search("<h2>(.*?)</h2>", found[0])[1])
    colours = style[:style.index(":root { color-scheme")]
    colours += """text { font: 12px system-ui, sans-serif; fill: var(--ink); } .soft, .ticks text { fill: var(--soft); }
.head { font-weight: 600; font-size: 14px; }
.lane g.wait rect { fill: url(#hatch); stroke: var(--c5); } .stripe { stroke: var(--c5); stroke-width: 3; }
.hatch-paper { fill: var(--paper); } .ticks line { stroke: var(--grid); } .ticks, .lane { overflow: visible; }
"""
    drawn = re.sub(r' (?:tabindex|data-\w+|role)="[^"]*"', "", "\n".join(drawn))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" width="{width}" height="{top}" '
            f'role="img">\n<title>{title}</title>\n<style>{colours}</style>\n{hatch[0] if hatch else ""}\n'
            f'<rect class="paper" width="{width}" height="{top}"/>\n{drawn}\n</svg>\n')


def still_figures():
    for chapter in sorted(DOCS.glob("*.md")):
        for figure in FIGURE.finditer(chapter.read_text()):
            if figure["still"]:
                yield chapter, figure


def draw(figure, picture, folder):
    if figure["still"] == "still":
        picture.write_text(still_of(write_page(figure["command"], folder), figure["part"]))
    else:
        run(figure["still"].removeprefix("still: ").replace("STILL", f"'{picture}'"), folder)


def draw_stills(folder):
    for chapter, figure in still_figures():
        draw(figure, DOCS / figure["picture"], folder)
        print(f"{chapter.name}: {figure['picture']}")


def check_stills(folder):
    """Of the pictures that a command draws; a page is of a run, and has other figures each time."""
    for chapter, figure in still_figures():
        if figure["still"] != "still":
            draw(figure, folder / "drawn.svg", folder)
            if (folder / "drawn.svg").read_text() != (DOCS / figure["picture"]).read_text():
                raise RuntimeError(f"{chapter.name}: {figure['picture']} is not what its command draws: docs/build-book --stills")


if __name__ == "__main__":
    try:
        figures_folder = DOCS.parent / "build/book-figures"
        figures_folder.mkdir(parents=True, exist_ok=True)
        (check_stills if sys.argv[1:] == ["--check"] else draw_stills)(figures_folder)
    except RuntimeError as error:
        sys.exit(f"figures.py: {error}")
