"""Models: named networks, run in batches for many callers, each by the version that it names."""
