"""Neural language models: cells, networks, their training and use."""
