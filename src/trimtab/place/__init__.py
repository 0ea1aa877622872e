"""What should be true: policies that place units on brokers, and the judge that referees them all."""
