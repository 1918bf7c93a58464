"""The shape for hosts of one or two cores: one frontend's core and one owner's core in one process."""
