"""Weights: immutable, numbered, content-hashed versions of models; one copy for each host."""
