"""Model pools: where all versions of a population stay."""
