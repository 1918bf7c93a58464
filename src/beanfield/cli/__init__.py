"""The two commands: options in, a running supervisor out."""
