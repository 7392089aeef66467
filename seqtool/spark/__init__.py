"""Models on Apache Spark: a DataFrame in, a DataFrame out.

import seqtool

tokens = seqtool.spark.parse(frame, "runs/mine")       a row a token
scored = seqtool.spark.surprisal(frame, "runs/ngram")  a row a token, with its surprisal
counts = seqtool.spark.count_ngrams(frame, 3)          a row an n-gram

session     the session of a command, and errors in two lines
blocks      files as records, with their lines
workers     what a worker does
frames      these functions
files       files in, a directory of files out: `--engine spark`
"""

from seqtool.spark.frames import parse as parse
from seqtool.spark.frames import segment as segment
from seqtool.spark.frames import tag as tag
