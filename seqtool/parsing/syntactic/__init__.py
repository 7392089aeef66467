"""A language model that parses: the sum over all derivations, exactly, in cubic time."""
