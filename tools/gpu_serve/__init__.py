"""A small serving engine in PyTorch, to measure what kept KV is worth; see tools/gpu-serve."""
