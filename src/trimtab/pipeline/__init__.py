"""The data cluster on Spark: feeds into datasets, channels into results."""
