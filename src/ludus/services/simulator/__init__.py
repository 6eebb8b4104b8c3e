"""Simulators: groups of envs, stepped by a policy, that give segments."""
