"""The protocol between the processes of a fleet: subjects, requests, messages, errors, and their encoding."""
