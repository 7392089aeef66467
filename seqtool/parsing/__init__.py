"""From words to trees, and before that from text to words.

Models:          segmenter/, tagger/ (any labels of words, too), parser/, pipeline/ (all of them)
What they share: model (directories, ensembles, chunks), config, data, train (a run from start to
                 end), encoding/ (words to vectors), sparse/ (indicator features)
At work:         inputs (what they can be called with), annotation (of a corpus), missing_columns,
                 unknown_words (of a text), spacy (a component)
"""
