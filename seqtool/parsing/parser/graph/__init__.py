"""Graph-based parsing: scores of arcs, and the trees of the highest sum."""
