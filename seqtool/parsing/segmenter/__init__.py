"""Raw text to sentences, tokens and words: by a recurrent network over characters, or by rules."""
