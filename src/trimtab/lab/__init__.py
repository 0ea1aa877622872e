"""Generated workloads (worlds), the papers' experiments on them, and their reports and plots."""
