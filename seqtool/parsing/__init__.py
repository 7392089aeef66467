"""From words to trees, and before that from text to words.

Models:          segmenter/, tagger/, parser/, pipeline/ (all of them), labeller/ (any labels of
                 words)
What they share: model (directories, ensembles, chunks), config, train (a run from start to end),
                 encoding/ (words to vectors)
At work:         inputs (what they can be called with), annotation (of a corpus), missing_columns,
                 unknown_words (of a text), spacy (a component)
"""
