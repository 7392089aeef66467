"""Trees as pictures, pages, objects and lines of the terminal; `rendering` is where to begin.

Sentences: marked (what is wrong in them), style
Pictures:  picture (words in a row), column (below one another), grouped (several), tikz
           (LaTeX)
Terminal:  textual, trace_text (derivations)
HTML:      page, trace_page (derivations)
"""
