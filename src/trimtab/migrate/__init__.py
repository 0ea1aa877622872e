"""How to get there: one move as a state machine, the catch-up rule, drains. No I/O."""
