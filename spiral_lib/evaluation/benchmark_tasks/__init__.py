"""Benchmarks: one module is one benchmark, and its ``task(settings)`` returns an lm-eval task configuration."""
