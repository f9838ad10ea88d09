"""Passwords as scrypt hashes: `scrypt$15$8$1$SALT$HASH`, cost as a power of two."""

from __future__ import annotations

import hashlib
import hmac
import secrets

_COST, _BLOCK, _PARALLEL = 15, 8, 1  # 32 MiB and about 0.1 s: source: RFC 7914 §2, N = 2^15, r = 8, p = 1
_MAX_MEMORY = 64 * 1024 * 1024
MAX_LENGTH = 1024  # characters: hashing longer ones only wastes time
MIN_LENGTH = 8


def hash_password(password: str) -> str:
    """Return the value for `[web] password_hash`."""
    salt = secrets.token_bytes(16)
    return f"scrypt${_COST}${_BLOCK}${_PARALLEL}${salt.hex()}${_derived(password, salt, _COST, _BLOCK, _PARALLEL)}"


def is_password(password: str, hashed: str) -> bool:
    """Whether this is the password, compared in constant time."""
    try:
        _, cost, block, parallel, salt, expected = hashed.split("$")
        derived = _derived(password[:MAX_LENGTH], bytes.fromhex(salt), int(cost), int(block), int(parallel))
    except ValueError:
        return False
    return hmac.compare_digest(derived, expected)


def _derived(password: str, salt: bytes, cost: int, block: int, parallel: int) -> str:
    key = hashlib.scrypt(password.encode(), salt=salt, n=1 << cost, r=block, p=parallel, maxmem=_MAX_MEMORY, dklen=32)
    return key.hex()
