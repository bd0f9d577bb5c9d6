"""Slides for a lecture, from the handouts: `ringside-exercises slides`.

One HTML file without anything outside of it: for each exercise the problem, the figure, the worked example, what to write, the measurement
and the questions, in the handout's own words. Arrow keys, space and a click lead from slide to slide; printing makes one
page of each. A slide whose text is long has smaller letters.
"""
import html
import re

import cut
import handouts

# (section, what of it is shown): a slide each.
SLIDES = [("Why", "text"), ("Why", "figure"), ("A worked example", "all"), ("What you write", "first table"), ("Measure it", "all"), ("Two questions", "all")]

STYLE = """body{margin:0;font-family:system-ui,'Noto Sans CJK SC',sans-serif;line-height:1.4;color:#1c2126}
section{box-sizing:border-box;height:100vh;width:100vw;padding:5vh 6vw 7vh;background:#fff;display:flex;flex-direction:column;
position:relative;overflow:hidden;break-after:page}
header{font-size:2.6vw;font-weight:600;margin-bottom:2.5vh}footer{position:absolute;bottom:2vh;left:6vw;right:6vw;font-size:1.1vw;color:#68707a}
main{flex:1;min-height:0;overflow:hidden;font-size:24px}main>*:first-child{margin-top:0}pre{background:#f3f5f7;padding:.6em .8em;overflow-x:hidden;font-size:.82em;line-height:1.3}
code{font-family:ui-monospace,'DejaVu Sans Mono',monospace;font-size:.92em}pre code{font-size:1em}table{border-collapse:collapse}
td,th{text-align:left;vertical-align:top;padding:.3em .8em .3em 0;border-bottom:1px solid #ccd2d8}svg{display:block;width:auto;height:auto;max-width:100%;max-height:48vh;margin:0 auto 1em}
svg.drawn{width:100%}.one section:not(.now){display:none}@page{size:1280px 720px;margin:0}@media print{section,.one section:not(.now){display:flex;height:720px;width:1280px}}"""

# Letters shrink until the slide holds its text; a slide that does not hold it even so is marked.
SCRIPT = """const slides=[...document.querySelectorAll('section')];
function fit(s){const m=s.querySelector('main');let size=innerWidth*.021;m.style.fontSize=size+'px';
const over=()=>m.scrollHeight>m.clientHeight+1||[...m.querySelectorAll('pre,table')].some(e=>e.scrollWidth>m.clientWidth+1);
while(over()&&size>innerWidth*.009){size*=.95;m.style.fontSize=size+'px'}s.classList.toggle('overflows',over())}
const at=()=>slides.findIndex(s=>s.classList.contains('now'));
function go(n){n=Math.max(0,Math.min(slides.length-1,n));slides.forEach((s,i)=>s.classList.toggle('now',i==n));history.replaceState(0,'','#'+slides[n].id)}
function all(){slides.forEach(fit);document.body.className='one'}
all();const named=()=>go(Math.max(0,slides.findIndex(s=>'#'+s.id==location.hash)));named();addEventListener('hashchange',named);
addEventListener('resize',()=>{document.body.className='';all()});
addEventListener('keydown',e=>{const step={ArrowRight:1,ArrowDown:1,PageDown:1,' ':1,ArrowLeft:-1,ArrowUp:-1,PageUp:-1}[e.key];
if(step){e.preventDefault();go(at()+step)}if(e.key=='Home')go(0);if(e.key=='End')go(slides.length-1)});
addEventListener('click',e=>{if(!e.target.closest('a'))go(at()+1)});"""


def inline(text):
    """`code`, *emphasis*, **strong**, links and addresses."""
    parts = re.split(r"`([^`]+)`", text)
    for i, part in enumerate(parts):
        part = html.escape(part, quote=False)
        if i % 2:
            parts[i] = f"<code>{part}</code>"
            continue
        part = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", part)
        part = re.sub(r"&lt;(https?://[^&]*)&gt;", r'<a href="\1">\1</a>', part)
        part = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", part)
        parts[i] = re.sub(r"(?<![\w*])\*([^*\s][^*]*)\*", r"<em>\1</em>", part)
    return "".join(parts)


def blocks(text):
    """[(kind, HTML)] of a section: text, table, code, list, figure."""
    found = []
    for block in re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+|(?:^\|.*\n)+|(?:^(?!\||    |\n).*\n)+", text + "\n", flags=re.M):
        lines = block.rstrip("\n").split("\n")
        if block.startswith("    "):
            found.append(("code", f"<pre><code>{html.escape(chr(10).join(line[4:] for line in lines))}</code></pre>"))
        elif block.startswith("|"):
            cells = [[inline(cell.strip()) for cell in line.strip().strip("|").split("|")] for line in lines if not re.fullmatch(r"[|\s:-]+", line)]
            row = lambda kind, line: "<tr>" + "".join(f"<{kind}>{cell}</{kind}>" for cell in line) + "</tr>"
            found.append(("table", f"<table>{row('th', cells[0])}{''.join(row('td', line) for line in cells[1:])}</table>"))
        elif block.startswith("!["):
            found.append(("figure", re.match(r"!\[([^\]]*)\]", block)[1]))
        elif match := re.match(r"(?:- |(\d)\. )", block):
            items = re.split(r"^(?:- |\d\. )", block, flags=re.M)[1:]
            kind = "ol" if match[1] else "ul"
            found.append(("list", f"<{kind}>{''.join(f'<li>{inline(joined(item))}</li>' for item in items)}</{kind}>"))
        else:
            found.append(("text", f"<p>{inline(joined(block))}</p>"))
    return found


def joined(text):
    """Lines of a paragraph: a space between them, none between Chinese characters."""
    return re.sub(r"(?<![\u3000-\u9fff\uff00-\uffef])\s*\n\s*|\s*\n\s*(?![\u3000-\u9fff\uff00-\uffef])", " ", text.strip()).replace("\n", "")


def slides_of(exercise, lang):
    """(heading, HTML) of each slide of an exercise."""
    text = (exercise["folder"] / f"handout.{lang}.md").read_text()
    bodies = re.split(r"^## (.*)\n", text, flags=re.M)
    sections = {handouts.ENGLISH.get(name, name): (name, blocks(body)) for name, body in zip(bodies[1::2], bodies[2::2])}
    title = cut.said(exercise["title"], lang)
    for section, shown in SLIDES:
        if section not in sections:
            continue
        name, parts = sections[section]
        if section == "Why":
            split = next((i for i, (kind, _) in enumerate(parts) if kind == "figure"), len(parts))
            if shown == "figure" and split < len(parts):
                figure = re.sub(r"<svg ", '<svg class="drawn" role="img" ', (exercise["folder"] / "figure.svg").read_text(), count=1)
                figure = figure.replace('id="', f'id="f{exercise["id"][:2]}').replace("url(#", f"url(#f{exercise['id'][:2]}")  # one file, many drawings
                yield title, figure + "".join(part for _, part in parts[split + 1:])
            elif shown == "text":
                yield f"{exercise['id'].split('-')[0]}. {title}", "".join(part for _, part in parts[:split])
        elif shown == "first table":
            yield name, next((part for kind, part in parts if kind == "table"), "") + "".join(part for kind, part in parts if kind == "code")
        else:
            yield name, "".join(part for _, part in parts)


def page(exercises, lang):
    found = []
    for exercise in exercises:
        found += [f"<section id=\"{exercise['id'][:2]}-{number}\"><header>{html.escape(heading)}</header><main>{body}</main><footer>Ringside · {exercise['id']}</footer></section>"
                  for number, (heading, body) in enumerate(slides_of(exercise, lang), 1)]
    return (f'<!doctype html><html lang="{lang}"><meta charset="utf-8"><title>Ringside</title><style>{STYLE}</style>\n'
            + "\n".join(found) + f"\n<script>{SCRIPT}</script></html>\n")
