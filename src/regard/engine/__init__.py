"""The engine: search with a Transformer on a CPU, in C."""
