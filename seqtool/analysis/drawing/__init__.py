"""How the charts and tables of a `Report` are drawn: as text, as SVG or PNG, as one HTML page."""
