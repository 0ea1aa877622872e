"""A channel's SQL: parsed, checked, and rewritten into one plan for all subscriptions."""
