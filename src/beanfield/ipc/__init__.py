"""The frames that cross the links between frontends and owners, and the actions a core asks of its loop."""
