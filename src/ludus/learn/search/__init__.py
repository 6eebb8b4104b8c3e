"""Tree search: what a policy and the rules of a game know together, on many boards at once."""
