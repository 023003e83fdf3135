"""Case study: images decoded on the CPU into a GPU network."""
