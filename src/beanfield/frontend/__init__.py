"""The process that speaks to clients: sessions, routing, the order of replies, reserves over several owners."""
