"""Words to vectors, and the recurrent encoder over sentences."""
