"""Sparse non-negative matrix language models: n-grams and skip-grams, adjusted by metafeatures."""
