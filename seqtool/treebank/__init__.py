"""CoNLL-U to trees and back, their scores and their pictures.

Sentences: sentence (lines as words), misc (column MISC), document (with rows and TokenLists)
Files:     conllu (CoNLL-U Plus, too), scanner (its compiled reader), layouts (words alone)
Trees:     projectivity, derivation (of a transition-based parser), drawing/
Measures:  evaluation, alignment (of words), summary (with diagnostics), queries
"""
