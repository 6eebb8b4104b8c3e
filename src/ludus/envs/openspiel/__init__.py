"""OpenSpiel's games: small ones from tables, larger ones from its states."""
