"""The write-ahead log of one slot: what is written, where, and what is found again. docs/wal.md draws the format."""
