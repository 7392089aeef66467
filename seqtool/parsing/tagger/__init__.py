"""Tags and lemmas: UPOS, XPOS and FEATS by a bidirectional LSTM, lemmas by edit scripts."""
