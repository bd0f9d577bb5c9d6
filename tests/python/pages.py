"""What tests look at in the page of a report: its data, its frame, and what a browser draws of it."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.dom.minidom
from pathlib import Path

DATA = re.compile(r'<script type="application/json" id="report">(.*?)</script>', re.DOTALL)


def report_in(page):
    """The facts and figures that the page carries."""
    return json.loads(DATA.search(page)[1])


def figures_in(page):
    """Its figures by title."""
    return {figure["title"]: figure for figure in report_in(page)["figures"]}


def require_well_formed(text):
    """Every tag of a page or a drawing is closed, every attribute quoted."""
    text = re.sub(r"<(script|style)[^>]*>.*?</\1>|<!DOCTYPE html>", "", text, flags=re.DOTALL)
    xml.dom.minidom.parseString(text)


def drawn(page, script=""):
    """The page after its script, and then `script`, have run in a browser: 77, "skipped", without one."""
    found = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    browser = next(found, None)
    if browser is None:
        print("SKIPPED: needs a browser (apt-get install chromium)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "page.html")
        file.write_text(page.replace("</body>", f"<script>{script}</script></body>"))
        seen = subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--enable-logging=stderr",
                "--window-size=1400,1000",
                "--virtual-time-budget=5000",
                f"--user-data-dir={folder}/browser",
                "--dump-dom",
                file.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "HOME": folder},
        )
    assert "CONSOLE" not in seen.stderr, seen.stderr
    return seen.stdout.rpartition('<script type="application/json"')[0]
