"""Graph-based parsing: scores of arcs, and the trees of the highest sum.

Parsing:  scores (of arcs and labels), trees (the best), ranking (the N best), decoder
Training: task (with the network), partition (sums over trees)
"""
