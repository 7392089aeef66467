"""Count-based n-gram language models.

Training:       data (texts to ids), counts, smoothing (discounts, probabilities, backoffs),
                engine/ (the same with DuckDB or Spark), config, train
Models:         table (the rows on disk), backoff (to what, weights, pruning),
                query (scores of texts), class_probabilities (of what ends a word), model
Word classes:   exchange (finds them), classes (the model of them)
Files:          arpa, arpa_lines, parquet
Commands:       listing (`ngram counts`), union (`ngram mix`: interpolation in one table)
"""
