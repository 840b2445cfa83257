"""The batcher of one pod: several models, one accelerator (N = 1 of scheduling.md)."""
