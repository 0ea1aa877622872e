"""The control loop of a live fleet: findings, plans, and their measured outcomes."""
