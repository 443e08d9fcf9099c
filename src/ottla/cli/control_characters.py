"""Control characters in names that brokers report, such as client ids and groups.

Anybody may choose these names. Printed as they are, they could move the cursor, hide text or break
a table.
"""

from __future__ import annotations

from typing import Final

_C0 = range(0x20)
_DELETE_AND_C1 = range(0x7F, 0xA0)
_LINE_ENDS_AND_DIRECTIONS = (*range(0x2028, 0x202F), *range(0x2066, 0x206A))
_SHORT: Final = {ord("\n"): r"\n", ord("\r"): r"\r", ord("\t"): r"\t"}
_ESCAPES: Final = {
    code: _SHORT.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
    for code in (*_C0, *_DELETE_AND_C1, *_LINE_ENDS_AND_DIRECTIONS)
}


def visible(text: str) -> str:
    r"""Return a text with control characters as escapes, such as \x1b and \n."""
    return text if text.isprintable() else text.translate(_ESCAPES)
