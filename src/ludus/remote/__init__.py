"""What a user's script holds: `train` and the run it returns."""
