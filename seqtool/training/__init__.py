"""The one training loop, what it needs to be resumed, and the course of a run."""
