"""Trees by linear scores of their arcs: McDonald, Crammer & Pereira 2005."""
