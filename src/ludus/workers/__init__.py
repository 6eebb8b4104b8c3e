"""Calls to names: workers, their control panel, commands by decorator, and the solver that finds a replica."""
