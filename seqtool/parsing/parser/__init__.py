"""The transition-based dependency parser."""
