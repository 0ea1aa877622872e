"""What the processes of a fleet say to each other: subjects, messages, errors, and how they travel."""
