"""Arguments of any Python values, signed: the only module that imports pickle."""

from __future__ import annotations

import base64
import hmac
import pickle
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from rxjobs.codec import checked_id
from rxjobs.errors import BrokenSeal, InvalidArguments, InvalidOption, MissingKey

MARK = "rxjobs.pickled"
LEAST_KEY_BYTES = 16


class Pickled(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Signed arguments, as they are stored."""

    scheme: Literal["hmac-sha256"] = msgspec.field(name=MARK)
    key: str
    mac: str
    """Base64, of the job type, the key's id and the data."""
    data: str
    """Base64 of the pickled arguments by name."""


_decode = msgspec.json.Decoder(Pickled).decode
_encode = msgspec.json.Encoder().encode


class PickleCodec:
    """Arguments are pickled, so that they may be of any values that pickle takes, and signed with HMAC-SHA-256.

    `keys` maps ids to keys of at least 16 bytes, such as secrets.token_bytes(32). The first key writes, all of them read: a new key
    is put first, and an old one stays until its last row is gone. What does not verify is never unpickled, nor is what was signed
    for another job type. Rows that are plain JSON are read as they are. Whoever has a key can run code on every node.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        if not isinstance(keys, Mapping) or not keys:
            raise InvalidOption('PickleCodec takes at least one key by its id, such as keys={"k1": key}')
        self._keys = {checked_id(id_): _checked_key(id_, key) for id_, key in keys.items()}
        self._writing = next(iter(self._keys))

    def __repr__(self) -> str:
        return f"PickleCodec(keys of the ids {', '.join(self._keys)})"

    def seal(self, payload: str, type: str) -> str:
        """JSON stays as it is: there is no code in it."""
        return payload

    def open(self, stored: str, type: str) -> str:
        """What a row shows to those who look: of pickled values only that there are some."""
        pickled = _read(stored)
        return stored if pickled is None else _encode({"***": f"pickled, signed with key {pickled.key}"}).decode()

    def pack(self, values: Mapping[str, Any], type: str, max_bytes: int) -> str:
        """The arguments by name, as they are stored; raises InvalidArguments for what cannot be pickled or is too large."""
        try:
            data = pickle.dumps(dict(values), protocol=5)
        except Exception as error:  # whatever a value's own code raises
            raise InvalidArguments(f"{type}: arguments: cannot be pickled: {error}") from error
        if len(data) > max_bytes:
            raise InvalidArguments(f"{type}: arguments: expected at most {max_bytes} bytes, got {len(data)}")
        mac = _sign(self._keys[self._writing], type, self._writing, data)
        text = [base64.b64encode(part).decode() for part in (mac, data)]
        return _encode(Pickled("hmac-sha256", self._writing, *text)).decode()

    def unpack(self, stored: str, type: str) -> dict[str, Any] | None:
        """The arguments by name, or None where they are not pickled; raises MissingKey, BrokenSeal, and what unpickling does."""
        pickled = _read(stored)
        if pickled is None:
            return None
        key = self._keys.get(pickled.key)
        if key is None:
            there = ", ".join(self._keys)
            raise MissingKey(f"{type}: the arguments are signed with key {pickled.key!r:.100}, and this node has the keys {there}")
        try:
            mac, data = base64.b64decode(pickled.mac, validate=True), base64.b64decode(pickled.data, validate=True)
        except ValueError:
            mac, data = b"", b""
        if not hmac.compare_digest(mac, _sign(key, type, pickled.key, data)):
            raise BrokenSeal(
                f"{type}: the arguments do not verify with key {pickled.key!r:.100}: another key of that id signed them, or they "
                "were changed, or moved here from another job type"
            )
        values: dict[str, Any] = pickle.loads(data)  # noqa: S301 - verified
        return values


def _read(stored: str) -> Pickled | None:
    if MARK not in stored:
        return None
    try:
        return _decode(stored)
    except msgspec.MsgspecError:
        return None


def _sign(key: bytes, type: str, id_: str, data: bytes) -> bytes:
    bound = f"rxjobs arguments of {type} with {id_}: ".encode()
    return hmac.digest(key, len(bound).to_bytes(4, "big") + bound + data, "sha256")


def _checked_key(id_: object, key: object) -> bytes:
    if not isinstance(key, bytes | bytearray) or len(key) < LEAST_KEY_BYTES:
        raise InvalidOption(f"key {id_} is no key: it takes at least {LEAST_KEY_BYTES} bytes, such as secrets.token_bytes(32)")
    return bytes(key)


def hand_over(values: Any) -> bytes:
    """Arguments on their way to a child process of this one; raises whatever pickling does."""
    return pickle.dumps(values, protocol=5)


def taken_over(data: bytes) -> Any:
    """What this process was handed over by its parent, over their own pipe: what came from a row was verified there."""
    return pickle.loads(data)  # noqa: S301 - from the parent
