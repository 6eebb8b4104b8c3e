"""Simulators: groups of worlds, stepped by a policy, that give segments."""
