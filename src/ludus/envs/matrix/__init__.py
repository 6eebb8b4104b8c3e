"""Games of one move: both players act at once, and it is over."""
