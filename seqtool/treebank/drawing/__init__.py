"""Trees as pictures, pages, objects and lines of the terminal; `rendering` is where to begin.

Sentences: marked (what is wrong in them), style
Pictures:  picture (SVG: words in a row, arcs above them), tikz (LaTeX)
Terminal:  textual, trace_text (derivations)
HTML:      page, trace_page (derivations)
"""
