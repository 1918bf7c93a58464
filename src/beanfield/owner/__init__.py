"""The process that owns one slot: its links, its engine, its journal. core.py is pure; main.py runs it."""
