"""What tests share: a fleet, processors, made-up problems, waiting."""
