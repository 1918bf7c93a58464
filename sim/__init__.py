"""Deterministic simulation of a whole Beanfield server: the real cores, virtual time, links, processes and clients."""
