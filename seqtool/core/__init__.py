"""What everything stands on: errors, settings, storage, checkpoints, compiled code. No torch."""
