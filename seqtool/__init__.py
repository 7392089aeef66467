"""seqtool: language models and dependency parsers from one command line."""

__version__ = "0.1.0"
