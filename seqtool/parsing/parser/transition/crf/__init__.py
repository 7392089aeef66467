"""Beams that are trained as a conditional random field: global training (Andor et al. 2016)."""
