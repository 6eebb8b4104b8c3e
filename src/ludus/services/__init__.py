"""What a training run is made of: simulator, inference, buffer, weights, trainer; each a folder."""
