"""Case study: a model file into the memory that kernels read."""
