"""Parsers that build a tree by transitions: systems, oracles, the classifier, the search.

Theory:     transitions (systems, configurations), oracles
Classifier: classifier (without torch), hidden_layer (compiled), network (for training)
Search:     search (beams), decoder, arcs (their probabilities), trace (how a tree is built)
Training:   task, teachers, crf/ (global training)
"""
