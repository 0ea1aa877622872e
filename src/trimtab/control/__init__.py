"""The loop over a live fleet: what is wrong, what to do about it, whether it helped."""
