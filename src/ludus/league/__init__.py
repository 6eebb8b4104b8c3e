"""A population of players: who beats whom, who meets whom next, how strong each is."""
