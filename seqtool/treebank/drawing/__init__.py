"""Trees as pictures, pages, objects and lines of the terminal; `rendering` is where to begin."""
