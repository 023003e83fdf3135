"""Discrete-event simulation of clients, links and GPUs; everything it prints is simulated."""
