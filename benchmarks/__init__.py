"""The measured claims of docs/benchmarks.md. Run alone on a quiet machine: ``make bench``."""
