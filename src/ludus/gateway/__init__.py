"""The gateway: games of any language call the agents that live here. docs/protocol.md is the contract."""
