"""What tests look at in the page of a report: its data, its frame, and what a browser draws of it."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import xml.dom.minidom
from pathlib import Path

import pytest

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
    """The page, without its scripts, after they and then `script` have run in a browser."""
    found = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    browser = next(found, None)
    if browser is None:
        pytest.skip("needs a browser (apt-get install chromium)")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "page.html")
        before, end, after = page.rpartition("</body>")  # of a page that may have one in a frame
        file.write_text(f"{before}<script>{script}</script>{end}{after}")
        seen = subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--force-prefers-reduced-motion",
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
    return re.sub(r"<script.*?</script>", "", seen.stdout, flags=re.DOTALL)
