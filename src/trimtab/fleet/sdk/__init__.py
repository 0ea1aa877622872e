"""What applications hold: the client, its routes, subscriptions and readers."""
