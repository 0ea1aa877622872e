"""What runs beside the hub's server: the keeper of the registry, and the executor of moves."""
