"""The ``trimtab`` command: one file per command; parse, call, print."""
