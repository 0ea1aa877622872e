"""The real thing: nats-server processes, agents, processors, the SDK, the registry."""
