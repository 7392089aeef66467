"""Dependency parsers: by transitions, by graphs, by sparse features; votes, teachers, variants.

Models:   model (`Parser`), vote (several), decoder (what finds trees), families (of them), labels,
          columns (that a text lacks)
Families: transition/, graph/, and the linear ones in `parsing.sparse`
Training: config, data, train, task, network (how words are read), distillation (teachers), variants
          (of sentences)
At work:  reading (of words, without torch), stream (many sentences), details (n best trees,
          derivations), calibration (of arcs), temperature (of a beam)
"""
