"""Networks: from observations to features, outputs and values."""
