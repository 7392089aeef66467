"""Parsers that build a tree by transitions: systems, oracles, the classifier, the search."""
