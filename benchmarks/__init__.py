"""The benchmarks of the project: `python -m benchmarks`, and the history of what they showed."""
