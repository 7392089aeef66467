"""What models do: each analysis returns a report of numbers, tables and charts.

It is a function `analyse`. `models` are names and loaded models, which stand side by side. `text`
is a file or directory of text, or a prepared corpus, `split` the part of a corpus; of it,
`num_tokens` are read at the most. `seed` is of all that is drawn. They raise `ConfigError` of a
model of another kind or an impossible option, `DataError` of a text that cannot be used.

Training:        learning (curves), gradients
Networks:        gates, context (how far back), recurrence, spectra, dynamics, cells (set by hand),
                 states
Words:           surprisal, prediction (of the next one), embeddings, sparsity (of n-grams)
Parsers:         errors
What they share: report, passage (the text that is looked at), overview (all that fits), drawing (a
                 report as pictures), page (as HTML)
"""
