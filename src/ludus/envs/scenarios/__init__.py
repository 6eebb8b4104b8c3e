"""Small problems of resources: agents that decide when something happens, not at every step."""
