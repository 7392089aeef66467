"""Language models interpolated: their probabilities weighted and added."""
