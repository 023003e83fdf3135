"""Case study: GPU logits, CPU sampling, every token."""
