"""The gRPC door for games: messages to steps, outcomes to messages and statuses."""
