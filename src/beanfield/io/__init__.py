"""Everything that touches the kernel: the reactor and its Python twin."""
