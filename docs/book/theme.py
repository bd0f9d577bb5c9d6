"""Completes the theme as Debian packages it (Furo 2022.12). Its script imports another one, which only a
bundler resolves; its style sheet imports one from a folder of Debian's web server, and lacks the
colours of a dark system. PyPI's Furo is complete and stays as it is.
"""
import re
import shutil
from pathlib import Path

NORMALIZE = Path("/usr/share/javascript/normalize.css/normalize.css")
DARK = re.compile(r'^  body\[data-theme="dark"\] (\{.*?\})', re.MULTILINE | re.DOTALL)


def complete(app, exception):
    scripts, styles = (Path(app.outdir, "_static", name) for name in ("scripts", "styles"))
    script, sheet = scripts / "furo.js", styles / "furo.css"
    if exception or not script.exists() or not script.read_text().startswith("import Gumshoe"):
        return
    bundled = (scripts / "gumshoe-patched.js").read_text() + script.read_text().partition("\n")[2]
    script.write_text(bundled)
    shutil.copy(NORMALIZE, styles)
    rules = sheet.read_text().replace("url(/javascript/normalize.css/normalize.css)", "url(normalize.css)")
    dark = f'@media screen and (prefers-color-scheme: dark) {{ body:not([data-theme="light"]) {DARK.search(rules)[1]} }}\n'
    sheet.write_text(rules + dark)


def setup(app):
    app.connect("build-finished", complete)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
