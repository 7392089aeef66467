"""Models on Apache Spark: a DataFrame in, a DataFrame out.

import seqtool

tokens = seqtool.spark.parse(frame, "runs/mine")       a row a token
scored = seqtool.spark.surprisal(frame, "runs/ngram")  a row a token, with its surprisal
counts = seqtool.spark.count_ngrams(frame, 3)          a row an n-gram

session    the session of a command, and errors of Spark in two lines
workers    models on workers, and what these make of the rows of a frame
files      files in, directories out
frames     parse, tag and segment: DataFrames, and files for `--engine spark`
scoring    surprisal and perplexity
ngrams     n-grams counted, and n-gram models
"""

from seqtool.spark.frames import parse as parse
from seqtool.spark.frames import segment as segment
from seqtool.spark.frames import tag as tag
from seqtool.spark.ngrams import count_ngrams as count_ngrams
from seqtool.spark.ngrams import train_ngram as train_ngram
from seqtool.spark.scoring import surprisal as surprisal
