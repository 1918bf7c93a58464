"""The process that owns one slot: it drives the slot's engine for all frontends."""
