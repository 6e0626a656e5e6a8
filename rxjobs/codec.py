"""What lies between a job's arguments as JSON and the column they are stored in: nothing, or encryption."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from rxjobs.errors import BadPayload, BrokenSeal, InvalidOption, MissingKey
from rxjobs.failure import qualified_name
from rxjobs.payload import ENCODER, load_untyped
from rxjobs.secret import MARK as SECRET_MARK
from rxjobs.secret import MASK, mask

KEY_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
KEY_BYTES = 32
NONCE_BYTES = 12
MARK = "rxjobs.sealed"


@runtime_checkable
class Codec(Protocol):
    """How arguments are stored: `open(seal(payload, type), type) == payload`, and what is sealed is JSON again.

    `payload` is the JSON text of the arguments, `type` the job type's name. What `open` raises is an error of that attempt.
    """

    def seal(self, payload: str, type: str) -> str: ...

    def open(self, stored: str, type: str) -> str: ...


@runtime_checkable
class ValueCodec(Codec, Protocol):
    """A codec that stores what JSON cannot hold: `unpack(pack(values, type, max_bytes), type) == values`, by their names.

    `unpack` gives None for a row that is plain JSON.
    """

    def pack(self, values: Mapping[str, Any], type: str, max_bytes: int) -> str: ...

    def unpack(self, stored: str, type: str) -> dict[str, Any] | None: ...


class Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Encrypted arguments, as they are stored."""

    scheme: Literal["aes-256-gcm-siv"] = msgspec.field(name=MARK)
    key: str
    data: str
    """Base64: the nonce, the encrypted JSON, the tag."""


_decode = msgspec.json.Decoder(Sealed).decode
_encode = msgspec.json.Encoder().encode


def read_sealed(stored: str) -> Sealed | None:
    """What a row holds if its arguments are encrypted."""
    if MARK not in stored:
        return None
    try:
        return _decode(stored)
    except msgspec.MsgspecError:
        return None


def is_hidden(stored: str) -> bool:
    """Whether there is something in it that is not to be shown."""
    return shown(stored) != stored


def shown(stored: str) -> str:
    """Arguments for whoever looks at a row without their type: JSON with `***` for secrets and for all that is encrypted."""
    if (sealed := read_sealed(stored)) is not None:
        return _encode({MASK: f"encrypted with key {sealed.key}"}).decode()
    try:
        document = load_untyped(stored)
    except BadPayload:
        return f'"{MASK}"' if SECRET_MARK in stored else stored
    masked = mask(document)
    # as it was stored wherever there is no secret: numbers keep their form
    return stored if masked == document else ENCODER.encode(masked).decode()


class PlainCodec:
    """Arguments are stored as they are."""

    def seal(self, payload: str, type: str) -> str:
        """The payload itself."""
        return payload

    def open(self, stored: str, type: str) -> str:
        """The payload itself; raises MissingKey for one that another app has encrypted."""
        if MARK in stored and (sealed := read_sealed(stored)) is not None:
            raise _missing(type, sealed.key, "no keys: give it App(codec=rj.EncryptedCodec(keys=...))")
        return stored


class EncryptedCodec:
    """Arguments are encrypted and authenticated with AES-256-GCM-SIV, bound to their job type. Needs the extra `encryption`.

    `keys` maps ids to keys of 32 bytes, or the same as URL-safe base64. The first key writes, all of them read: a new key is
    put first, and an old one stays until its last row is gone. Rows that are not encrypted are read as they are.
    """

    def __init__(self, keys: Mapping[str, bytes | str]) -> None:
        if not isinstance(keys, Mapping) or not keys:
            raise InvalidOption('EncryptedCodec takes at least one key by its id, such as keys={"k1": key}')
        self._ciphers = {checked_id(id_): _cipher(id_, key) for id_, key in keys.items()}
        self._writing = next(iter(self._ciphers))

    def __repr__(self) -> str:
        return f"EncryptedCodec(keys of the ids {', '.join(self._ciphers)})"

    def seal(self, payload: str, type: str) -> str:
        """Encrypt with the first key."""
        nonce = os.urandom(NONCE_BYTES)
        data = nonce + self._ciphers[self._writing].encrypt(nonce, payload.encode(), _bound_to(type))
        return _encode(Sealed("aes-256-gcm-siv", self._writing, base64.b64encode(data).decode())).decode()

    def open(self, stored: str, type: str) -> str:
        """Decrypt; raises MissingKey or BrokenSeal, which name the key."""
        sealed = read_sealed(stored)
        if sealed is None:
            return stored
        cipher = self._ciphers.get(sealed.key)
        if cipher is None:
            raise _missing(type, sealed.key, f"the keys {', '.join(self._ciphers)}")
        try:
            data = base64.b64decode(sealed.data, validate=True)
            plain: bytes = cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], _bound_to(type))
            return plain.decode()
        except Exception:
            # nothing of the cause is told: it says no more, and might say what was found
            raise BrokenSeal(
                f"{type}: the arguments do not open with key {sealed.key!r:.100}: another key of that id wrote them, or they "
                "were changed, or moved here from another job type"
            ) from None


def _missing(type: str, key: str, there_are: str) -> MissingKey:
    return MissingKey(f"{type}: the arguments are encrypted with key {key!r:.100}, and this node has {there_are}")


def _bound_to(type: str) -> bytes:
    return b"rxjobs arguments of " + type.encode()


def checked_id(id_: object) -> str:
    """A key's id; raises InvalidOption for what cannot be one."""
    if not isinstance(id_, str) or not KEY_ID.fullmatch(id_):
        raise InvalidOption(f"a key's id is text of letters, digits and . : _ -, at most 64; one of {type(id_).__name__} is not")
    return id_


def _cipher(id_: object, key: object) -> Any:
    # an extra: it may be absent
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
    except ImportError as error:
        raise InvalidOption("EncryptedCodec needs the package cryptography: pip install 'rxjobs[encryption]'") from error
    try:
        # GCM-SIV: no harm is done where a random nonce comes twice, so that a key serves any number of rows
        return AESGCMSIV(_key_bytes(id_, key))
    except UnsupportedAlgorithm as error:
        raise InvalidOption("EncryptedCodec needs a cryptography built with OpenSSL 3.2 or later; its wheels are") from error


def _key_bytes(id_: object, key: object) -> bytes:
    given = key if isinstance(key, bytes | bytearray) else b""
    if isinstance(key, str):
        try:
            given = base64.b64decode(key + "=" * (-len(key) % 4), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            given = b""
    if len(given) != KEY_BYTES:
        raise InvalidOption(
            f"key {id_} is no key: it takes {KEY_BYTES} bytes, or the URL-safe base64 of so many, such as secrets.token_urlsafe(32)"
        )
    return bytes(given)


def checked(codec: Any) -> Codec:
    """The codec that an app was given, or one that leaves arguments as they are; raises InvalidOption for what is none."""
    if codec is None:
        return PlainCodec()
    if isinstance(codec, type) or not isinstance(codec, Codec):
        # its class only: what was given may be a key
        kind = qualified_name(type(codec))
        raise InvalidOption(f"codec takes an object with seal and open, such as rj.EncryptedCodec(keys=...), not one of {kind}")
    return codec
