"""Text to ids: tokenizers, prepared corpora, the shipped sample.

Units:    tokenizers (words, characters, bytes), subwords, words (compiled), marks, word_classes
Corpora:  prepared (text to ids of splits on disk)
Data:     datasets (the sample, and what is fetched)
Spelling: characters (of a form, and filters over them), network (the same for training)
"""
