"""`ludus serve`: a trained policy behind sessions; which version `production` is."""
