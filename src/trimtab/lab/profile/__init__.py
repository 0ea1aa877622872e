"""Load tests of a real broker: designed co-locations, measured latencies, and the hardware profile fitted to them."""
