"""The pages of `ringside account` and `simulate` as a browser draws them."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from pages import drawn, figures_in, require_well_formed
from ringside.lab.report import Figure, Report, html_of
from ringside.lab.tables import Table, words


def page_of(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        command = [sys.executable, "-m", "ringside", *arguments, "--html", str(page)]
        subprocess.run(command, check=True, capture_output=True)
        return page.read_text()


def names_of_lanes(page):
    return re.findall(r'<span class="lane-name">(.*?)</span>', page)


def test_each_part_of_a_bar_has_a_colour_of_its_own():
    for plan in ("llama3-70b pp=4,dp=2,tp=8", "llama3-8b fsdp=8,tp=8"):
        model, mesh = plan.split()
        plan = ("--model", model, "--mesh", mesh, "--micro-batches", "16")
        page = drawn(page_of("account", *plan))
        legends = re.findall(r'<ul class="legend">(.*?)</ul>', page, re.DOTALL)
        assert len(legends) == 2
        for legend in legends:
            colours = re.findall(r'<g class="(c\d)">', legend)
            assert len(colours) >= 5 and len(set(colours)) == len(colours), legend
    assert names_of_lanes(page) == ["rank", "step"]
    assert re.search(r'aria-label="rank: optimizer state, [0-9.]+ GB"', page)


def test_a_step_has_two_lanes_for_each_rank():
    plan = ("--model", "llama3-8b", "--mesh", "pp=4,dp=2,tp=8", "--micro-batches", "8")
    page = drawn(page_of("simulate", *plan))
    assert names_of_lanes(page) == ["compute", "communication"] * 4
    assert page.count("<h3>") == 4 and page.count(": backward (") == 4 * 8
    assert 'class="wait"' in page and 'aria-label="Rank 0: forward (0F0), ' in page


def test_curves_have_a_legend_and_ticks_with_units():
    curves = ("all_reduce", "-n", "64", "--algorithm", "ring,halving_doubling")
    page = drawn(page_of("simulate", *curves))
    assert page.count("<polyline") == 2 * 2  # in the legend, and the curves
    for text in ("ring", "halving_doubling", "10 KB", "1 GB", "1 ms"):
        assert f">{text}</text>" in page, text


def test_a_page_may_have_any_text_and_shows_it_without_a_script():
    wicked = '</script><b> & "{{data}}"'
    figure = Figure(wicked, None, wicked, Table([words(wicked)], [[wicked]]))
    page = html_of(Report(wicked, [(wicked, wicked)], [figure]))
    require_well_formed(page)
    assert figures_in(page)[wicked]["table"]["rows"] == [[wicked]]
    assert "&lt;/script&gt;&lt;b&gt; &amp; &quot;{{data}}&quot;" in page.partition("</noscript>")[0]
    seen = drawn(page, "document.body.dataset.cell = document.querySelector('td').textContent")
    assert "<b>" not in seen
    assert 'data-cell="&lt;/script&gt;' in seen or 'data-cell="</script>' in seen, seen[-300:]
