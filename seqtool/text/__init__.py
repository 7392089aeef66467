"""Text to ids: tokenizers, prepared corpora, the shipped sample."""
