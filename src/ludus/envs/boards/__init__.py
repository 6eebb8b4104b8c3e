"""Board games on many boards at once: their rules (`core.Rules`), and envs over any rules."""
