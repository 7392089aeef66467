"""Neural language models: cells, networks, their training and use.

Networks:   network, cells (their equations), highway (loops of the recurrent highway cell)
Output:     output (full, adaptive and sampled layers), maxent, softmax (fused with its loss)
Products:   products (which library makes them, in which type)
Training:   config, data (windows), train
At work:    model, dynamic (evaluation)
"""
