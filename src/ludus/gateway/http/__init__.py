"""The gateway's HTTP side: bytes of connections to steps, answers to bytes."""
