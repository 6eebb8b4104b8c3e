"""The game's side of the protocol in Python. docs/protocol.md has the words.

with GameClient("http://127.0.0.1:8000", "session-1") as game:
    game.start(b"map 7")
    action = game.tick(observation)
    game.end(b"won")

Steps are numbered, so one whose connection broke is sent again and never runs twice. If in the end it is not known what
became of it (`OutcomeUnknown`), the next call is a step of its own all the same. For an event loop there is
`aio.AsyncGameClient`.
"""

from ludus.gateway.client.protocol import GameError, Place, check_header
from ludus.gateway.client.sync import GameClient

__all__ = ["GameClient", "GameError", "Place", "check_header"]
