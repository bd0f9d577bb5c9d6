"""Formulas, $...$ in a line and ```math as a block, become MathML, which a browser draws without a script
or a font of the book. GitHub draws the same text with MathJax; inside of $...$ it takes a backslash
before punctuation for Markdown's, so there no `\\,` can be used."""
import inspect
import re

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.errors import ExtensionError

# The name of the second argument, and its meaning, differ between versions of docutils.
AS_BLOCK = {"as_block": True} if "as_block" in inspect.signature(tex2mathml).parameters else {"inline": False}


def mathml(writer, node, **how):
    # Rows of a displayed formula are aligned by docutils itself; GitHub needs the environment.
    text = node.astext().replace(r"\begin{aligned}", "").replace(r"\end{aligned}", "")
    try:
        return tex2mathml(text, **how).replace(">/</mo>", ' lspace="0" rspace="0">/</mo>')  # a/b, not a / b
    except SyntaxError as error:
        raise ExtensionError(f"{writer.builder.current_docname}: the formula {node.astext()}: {error}") from error


def inline(writer, node):
    if re.search(r"\\[^A-Za-z]", node.astext()):
        raise ExtensionError(f"{writer.builder.current_docname}: GitHub does not draw the formula {node.astext()}")
    writer.body.append(mathml(writer, node).replace("\n", ""))
    raise SkipNode


def block(writer, node):
    writer.body.append(f'<div class="formula">{mathml(writer, node, **AS_BLOCK)}</div>')
    raise SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
