"""Python imports this when it starts: a command that a quick test runs must not start servers either."""

from helpers.processes import refuse_all

refuse_all()
