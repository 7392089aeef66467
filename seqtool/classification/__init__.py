"""Labels of whole texts: by a bag of n-grams, or by a recurrent network."""
