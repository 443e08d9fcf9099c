"""BLAKE2, without OpenSSL.

`hashlib` has the same function, but loads OpenSSL too. That takes some milliseconds, in which it
holds the loop, and four megabytes.
"""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # a Python that has it elsewhere
    from hashlib import blake2b

__all__ = ["blake2b"]
