"""What goes wrong."""


class Failure(Exception):
    """What to tell the user instead of a traceback."""


class Unproven(Failure):
    """The statistics do not show what they must."""
