"""What everything stands on; no torch.

Messages:      errors (all that is raised on purpose), terminal (what is printed), progress (events
               of a run, shown and logged), units (nats, bits, perplexity), one_line (how results
               print themselves)
Settings:      config (dataclasses), strict_yaml
Files:         storage (whole or not at all), reading (text in blocks), checkpoint (one
               format of directories for every model)
Processes:     runtime (cores and memory), processes, signals (Ctrl-C)
Compiled code: jit (functions by Numba), instructions, eight_bytes and string_table (what compiled
               loops share)
And:           vocabulary, arrays (their types), bootstrap, version
"""
