"""The pyramid of learning: ops → networks → policies → algorithms. Knows nothing of processes."""
