"""What a script declares in its trial by name: models, buffers, actors, trainers, metrics."""
