"""Estimation where the n-grams do not fit into memory: one plan, and the engines that run it."""
