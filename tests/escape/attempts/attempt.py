"""What an attempt is. A mechanism's file lists its own; tests/escape/attempts/__init__.py collects them."""
from dataclasses import dataclass

OUTSIDE, NEIGHBOUR = "outside", "neighbour"
SYS_RESOURCE = 24  # of capabilities(7)


@dataclass(frozen=True)
class Attempt:
    """A way out: a Python program that calls escaped() when it got what a sandbox must not give.

    It knows the prelude (program.py) and what the test planted as variables (escape_test.py, facts())."""
    name: str
    wall: str  # which wall stops it inside; one line
    code: str
    lacks: str = ""  # why it may not work outside either, on a kernel or host that is right otherwise
    own_root: str = ""  # why it is no way out for the root of a sandbox, or not his to try
    own_user: str = ""  # why it is none for its user
    proof: str = OUTSIDE  # where it is first seen to work: as root on the host, or in the sandbox that it is aimed at
    needs: int = -1  # the capability of the host's root that the wall is made with; some hosts have taken it from theirs
    levels: tuple = ()  # the isolation levels it means anything for; () all
