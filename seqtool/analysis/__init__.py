"""What models do: each analysis returns a report of numbers, tables and charts.

Training:        learning (curves), gradients
Networks:        gates, context (how far back), recurrence, spectra, dynamics, cells (set by hand),
                 states
Words:           surprisal, prediction (of the next one), embeddings, sparsity (of n-grams)
Parsers:         errors
What they share: report, passage (the text that is looked at), overview (all that fits), drawing (a
                 report as pictures), page (as HTML)
"""
