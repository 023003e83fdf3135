"""Experiments on links: the same programs on the modelled server and on a GPU, with predictions beside
results."""
