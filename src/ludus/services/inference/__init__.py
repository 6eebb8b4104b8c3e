"""Inference: forward passes for many callers in one batch, each by the version that it names."""
