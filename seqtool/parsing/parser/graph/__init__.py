"""Graph-based parsing: scores of arcs, and the trees of the highest sum.

Scores:   scores (without torch), meanfield (second order), network (for training)
Trees:    eisner (projective), spanning (all trees), ranking (the N best),
          decoder
Training: task, partition (sums over trees)
"""
