"""Drivers and platforms, found by listing this folder: a file is a platform, a folder a driver."""
