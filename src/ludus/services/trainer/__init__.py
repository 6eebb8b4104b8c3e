"""Trainers: ranks that learn together, and the worker that hosts one."""
