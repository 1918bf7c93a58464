"""The queue semantics of one slot. Knows no bytes on a wire, no sockets, no clock, no disk."""
