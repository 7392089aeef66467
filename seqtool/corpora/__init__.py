"""Text, tokenizers and prepared corpora."""
