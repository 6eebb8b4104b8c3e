"""`ludus.train`, `resume` and `evaluate`: a run in this process, or spread over many."""
