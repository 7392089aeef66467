"""What every language model answers, and how it is measured and sampled."""
