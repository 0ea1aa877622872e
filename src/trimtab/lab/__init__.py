"""Made-up worlds, the papers' experiments on them, and reports people can look at."""
