"""One trial: its folder is found, opened, joined, driven and ended here."""
