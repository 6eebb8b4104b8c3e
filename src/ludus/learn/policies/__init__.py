"""Policies: a model, a distribution over actions, and recurrent state."""
