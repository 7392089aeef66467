"""Sparse indicator features, hashed to one array of weights: the models before networks.

Engine:    engine (templates, their hash, sums of weights and their averages)
Families:  words (of taggers), transitions and arcs with arc_decoder (of parsers)
Learners:  adagrad (of taggers), perceptron (of transitions), mira (of arcs), task (of both)
"""
