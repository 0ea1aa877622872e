"""Which links to carry, and where, so that the most data arrives (Lambert & Sakellariou, MaxDataRcvd)."""
