"""Parsers with linear models: sparse features, hashed into one array of weights."""
