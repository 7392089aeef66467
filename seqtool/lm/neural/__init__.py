"""Neural language models: cells, networks, their training and use.

Networks:   network, cells (RNN, LSTM, GRU), highway (recurrent highway)
Output:     output (what an output layer answers; full softmax), softmaxes (adaptive, sampled),
            maxent
On the CPU: lstm_cpu, highway_cpu (loops over time), products, recurrent_products
Training:   config, data (windows), task, train
At work:    model, dynamic (evaluation)
"""
