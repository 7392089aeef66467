"""CoNLL-U to trees and back, their scores and their pictures.

Sentences: sentence (lines as words), features (FEATS and MISC), document, tokenlists (of the
           library conllu)
Files:     conllu, scanner (its compiled reader), plus (CoNLL-U Plus), layouts (words alone),
           spacing
Trees:     projectivity, derivation (how one was built), scores (how sure a parser is), drawing/
Measures:  evaluation, alignment (of words), summary, doubts (what cannot be right), queries
"""
