"""Models on Apache Spark: a DataFrame in, a DataFrame out.

import seqtool

tokens = seqtool.spark.parse(frame, "runs/mine")       a row a token
scored = seqtool.spark.surprisal(frame, "runs/ngram")  a row a token, with its surprisal
counts = seqtool.spark.count_ngrams(frame, 3)          a row an n-gram

session       the session of a command, and errors in two lines
shipping      models on workers
blocks        files as records, with their lines
texts         their lines, as one process reads them
folders       directories of any file system
workers       what a worker does to annotate text
frames        DataFrames in and out
files         files in, a directory of files out: `--engine spark`
scoring       surprisal and perplexity
counting      symbols of texts, counted
engine        the n-gram plan's engine
ngrams        n-gram models
"""

from seqtool.spark.frames import parse as parse
from seqtool.spark.frames import segment as segment
from seqtool.spark.frames import tag as tag
from seqtool.spark.ngrams import count_ngrams as count_ngrams
from seqtool.spark.ngrams import train_ngram as train_ngram
from seqtool.spark.scoring import surprisal as surprisal
