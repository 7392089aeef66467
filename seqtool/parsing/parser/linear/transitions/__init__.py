"""Transition parsers with a linear classifier (MaltParser; Zhang & Nivre 2011)."""
