"""Remoting: unmodified CUDA programs run on a GPU across a LAN (umsh-serve, umsh-run)."""
