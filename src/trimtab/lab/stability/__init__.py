"""A fleet in virtual time, cases that make load balancers run in circles, and those they are known from."""
