"""What would be true: a broker simulator, and models that predict the latency of co-located topics."""
