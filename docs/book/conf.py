"""How Sphinx makes the book of the pages in docs/. docs/build-book calls it."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "Ringside"
copyright = "The Ringside authors"
root_doc = "index"
extensions = ["myst_parser", "chapters", "formulas", "theme"]
exclude_patterns = ["book"]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
myst_dmath_double_inline = False
html_math_renderer = "mathml"
highlight_language = "text"
smartquotes = False

html_theme = "furo"
html_title = "Ringside"
html_static_path = ["static"]
html_css_files = ["book.css"]
html_js_files = ["live.js"]
html_copy_source = False
html_use_index = False
html_show_sphinx = False
html_show_search_summary = False  # a page that was opened as a file may not read other files
html_permalinks_icon = "#"
html_theme_options = {"dark_css_variables": {"color-background-primary": "#16191d"}}  # that of the figures
