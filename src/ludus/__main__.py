"""`python -m ludus`: the `ludus` command."""

from ludus.cli.main import entry

if __name__ == "__main__":
    entry()
