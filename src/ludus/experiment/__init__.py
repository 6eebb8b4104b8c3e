"""A training run: its configuration, its folder, its flows. `wiring` alone knows all services."""
