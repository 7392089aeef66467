"""What every language model answers, and how it is measured and sampled.

Models:   protocol (what each answers), model (what people call), array_file (vectors on disk)
Measures: evaluation (perplexity), comparison, held_out (the text of a model's own corpus),
          unknown (words)
Text:     sampling (by chance or by search)
Words:    words (surprisal), alignment (words and tokens), states (vectors in context), stimuli
          (texts in a table), pairs (minimal pairs)
Tables:   tables (files for other programs)
Kinds:    ngram/, snm/, neural/, mixture/
"""
