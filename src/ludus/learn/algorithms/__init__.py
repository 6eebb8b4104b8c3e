"""Algorithms: each one file, with its configuration on top and its loss below."""
