"""How charts and tables of a `Report` are drawn: in the terminal, as SVG, PNG, and one HTML page."""
