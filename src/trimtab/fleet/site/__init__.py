"""Starting things: configuration of nats-server, processes, credentials."""
