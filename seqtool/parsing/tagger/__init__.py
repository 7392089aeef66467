"""Tags and lemmas: UPOS, XPOS and FEATS by a bidirectional LSTM, lemmas by edit scripts.

At work:  model (`Tagger`), morphology (bundles of tags), lemmas, `parsing.sparse` (features beside
          the network); labeller (any labels, of one column), entities (spans), columns (files)
Training: config, data, network, train
"""
