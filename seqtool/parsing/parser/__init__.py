"""Dependency parsers: by transitions, by graphs, by sparse features; votes, teachers, variants."""
