"""The version of seqtool, which also builds the package and marks what is written."""

__version__ = "0.2.0.dev0"
