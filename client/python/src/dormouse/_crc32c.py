"""CRC-32C (RFC 3720, appendix B.4) where the package google-crc32c is installed: `pip install dormouse[crc32c]`.

Python has none of its own, and one in Python would cost more than the transfer it checks. Without it the count of bytes
is still checked, and so are TCP's and the machine's own sums.
"""

from __future__ import annotations

from typing import Callable

_extend: Callable[[int, bytes], int] | None
try:
    from google_crc32c import extend as _extend
except ImportError:
    _extend = None

AVAILABLE = _extend is not None


def extend(crc: int, data: bytes) -> int:
    """The sum over what `crc` covers, then `data`; 0 where no sum can be had."""
    return 0 if _extend is None else _extend(crc, data)
