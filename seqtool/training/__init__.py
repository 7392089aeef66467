"""The one training loop, what it needs to be resumed, and the course of a run.

The loop: loop, task (what it asks of what it trains), optimisers, state (on disk),
          config (settings, schedules), hardware (device, precision, processes)
Above it: run (of a `train-*` command), tuning (search for settings)
"""
