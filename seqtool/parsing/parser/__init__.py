"""Dependency parsers: by transitions, by graphs, by sparse features; votes, teachers.

Models:   parser (`Parser`: load, parse, stream, k-best trees, marginals), vote (several as one),
          calibration (temperatures, probabilities of arcs), decoder (finds trees), labels,
          families (of decoders)
Families: transition/, graph/, and the linear ones in `parsing.sparse`
Training: config, data, train, task, network (how words are read), distillation (teachers, and
          variants of sentences)
At work:  reading (of words, without torch)
"""
