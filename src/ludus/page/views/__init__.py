"""One file for each view; `registry.py` has their order."""
