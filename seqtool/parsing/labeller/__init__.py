"""Any labels of words, as of named entities."""
