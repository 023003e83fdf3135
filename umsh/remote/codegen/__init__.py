"""Generates both ends of the remote calls from prototypes and tables."""
