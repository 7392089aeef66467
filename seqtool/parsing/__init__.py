"""From words to trees, and before that from text to words.

Models:          segmenter/, tagger/, parser/, pipeline/ (all of them), labeller/ (any labels of
                 words)
What they share: model (directories, ensembles, chunks), config, train (a run from start to end),
                 encoding/ (words to vectors), sparse/ (indicator features)
At work:         inputs (what they can be called with), annotation (of a corpus), unknown (words
                 that a model never learnt), spacy (a component)
"""
