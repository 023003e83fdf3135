"""Litmus tests of shared memory: what each mechanism keeps, with evidence (docs/litmus.md)."""
