"""Benchmarks of memory sharing: one file each, the same under `umsh-probe` and `pytest microbench`."""
