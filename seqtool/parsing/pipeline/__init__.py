"""Segmenters, taggers and parsers of one treebank, trained together and applied to raw text."""
