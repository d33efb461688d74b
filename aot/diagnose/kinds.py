"""What may be wrong with a rung, or with an operator, as reports and requests name it."""

from typing import Final

FAILS: Final = "fails"
CRASHES: Final = "crashes"
HANGS: Final = "hangs"
DIFFERS: Final = "differs"
OVERFLOWS: Final = "overflows"
WRONG_FAKE: Final = "wrong fake"
WRONG_BACKWARD: Final = "wrong backward"
