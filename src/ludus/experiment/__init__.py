"""A training run: its configuration, its flows, its results. `wiring` joins its parts within a process."""
