"""Tags and lemmas: UPOS, XPOS and FEATS by a bidirectional LSTM, lemmas by edit scripts.

At work:  model (`Tagger`), morphology (bundles of tags), lemmas; `parsing.sparse` (features beside
          the network)
Training: config, data, network, task, train
"""
