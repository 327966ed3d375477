"""Sign receipts with Ed25519, to show who made a release. Recomputation cannot show it.

A consistent forgery (another plan and noise, with tables and digests that fit) passes every check
that uses the receipt alone. It lacks a signature by a key that the reader got from the custodian,
separately from the release. The signature file is JSON with the public key and the signature of the
receipt's bytes, both in hexadecimal.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from neyman.storage.durable import sync_folder
from neyman.storage.reading import read_file, read_json

SIGNATURE = "receipt.sig"
_SCHEMA = "neyman-signature/1"
_MAX_KEY_FILE_BYTES = 100_000


class SignatureError(ValueError):
    """Report an invalid signature or key."""


def create_key(path: str | Path) -> tuple[Path, str]:
    """Make a private key file (PEM, mode 0600), and write its public key to ``<path>.pub``.

    Return the path of the public key, which verifiers need, and the key's fingerprint.
    """
    path = Path(path)
    public = path.with_name(f"{path.name}.pub")
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption())
    form = pem.PublicFormat.SubjectPublicKeyInfo
    public_bytes = key.public_key().public_bytes(pem.Encoding.PEM, form)
    if os.path.lexists(public):
        raise SignatureError(f"{public} already exists: keys are not replaced, name another file")
    try:
        for file, content, mode in ((path, secret, 0o600), (public, public_bytes, 0o644)):
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with open(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(handle)
        with suppress(OSError):  # not every folder can be opened
            sync_folder(path.parent)
    except FileExistsError as error:
        raise SignatureError(
            f"{error.filename} already exists: keys are not replaced, name another file"
        ) from None
    except OSError as error:
        raise SignatureError(f"{error.filename} cannot be written: {error.strerror}") from None
    return public, fingerprint(_raw(key.public_key()))


def sign(receipt: bytes, key: str | Path) -> bytes:
    """Return the bytes of a receipt's signature file. Refuse a key file that others can access."""
    public, mark = sign_bytes(receipt, key)
    content = {
        "schema": _SCHEMA,
        "algorithm": "ed25519",
        "public_key": public.hex(),
        "signature": mark.hex(),
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def sign_bytes(message: bytes, key: str | Path) -> tuple[bytes, bytes]:
    """Return the public key (32 bytes) and the Ed25519 signature of a message (64 bytes)."""
    private = _private(Path(key))
    return _raw(private.public_key()), private.sign(message)


def public_bytes(key: str | Path) -> bytes:
    """Return the 32 raw bytes of the public key in the PEM file ``key``."""
    return _raw(_public(Path(key)))


def check_signature(receipt: bytes, signature: bytes, key: str | Path | None = None) -> str:
    """Return a text that says who signed a receipt, if the signature is valid.

    Without ``key``, any key passes, and only the fingerprint identifies the signer. The release may
    contain this key itself.

    Raises:
        SignatureError: the signature is not of this receipt, or not by ``key``.
    """
    try:
        content = read_json(signature[:_MAX_KEY_FILE_BYTES])
        if (content["schema"], content["algorithm"]) != (_SCHEMA, "ed25519"):
            raise SignatureError(
                f"the signature has the format {content['schema']!r:.80}, and this version of "
                f"neyman reads {_SCHEMA!r}: nothing was changed; use the version that wrote it"
            )
        public, mark = bytes.fromhex(content["public_key"]), bytes.fromhex(content["signature"])
    except (ValueError, KeyError, TypeError) as error:
        text = " ".join(str(error).split())[:100]
        raise SignatureError(f"the signature cannot be read: {text}") from None
    return check_signer(public, mark, receipt, key)


def check_signer(public: bytes, mark: bytes, message: bytes, key: str | Path | None = None) -> str:
    """Check a signature, and return a text that says who signed the message.

    ``public`` is the public key (32 bytes), and ``mark`` is the signature (64 bytes).

    Raises:
        SignatureError: the signature is not of this message, or not by ``key``.
    """
    try:
        by = Ed25519PublicKey.from_public_bytes(public)
    except ValueError as error:
        text = " ".join(str(error).split())[:100]
        raise SignatureError(f"the signature cannot be read: {text}") from None
    if key is not None and _raw(_public(Path(key))) != public:
        raise SignatureError(
            f"it is signed by the key {fingerprint(public)}, and {key} is"
            f" {fingerprint(_raw(_public(Path(key))))}: someone else has signed it"
        )
    try:
        by.verify(mark, message)
    except InvalidSignature:
        raise SignatureError(
            "the signature is not of this receipt: one of them was changed"
        ) from None
    if key is None:
        return (
            f"signed by the key {fingerprint(public)}, which came with the release: compare it"
            " with the custodian's (--key)"
        )
    return f"signed by {key} ({fingerprint(public)})"


def fingerprint(public: bytes) -> str:
    """Return the first 32 hexadecimal digits of the key's SHA-256, in groups of four."""
    digits = hashlib.sha256(public).hexdigest()[:32]
    return ":".join(digits[place : place + 4] for place in range(0, 32, 4))


def _private(path: Path) -> Ed25519PrivateKey:
    content = _read(path, "private")
    try:
        key = pem.load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError) as error:
        if isinstance(error, TypeError):
            raise SignatureError(f"{path} is encrypted: give a key without a password") from None
        raise SignatureError(
            f"{path} holds no private key in PEM: make one with `neyman ledger key`"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SignatureError(f"{path} is a key of another kind: make one with `neyman ledger key`")
    if os.name != "nt" and path.stat().st_mode & 0o077:
        raise SignatureError(f"{path} may be read by others: chmod 600 {path}")
    return key


def _public(path: Path) -> Ed25519PublicKey:
    content = _read(path, "public")
    try:
        key = pem.load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm, InternalError):
        raise SignatureError(
            f"{path} holds no public key in PEM: it is the file that ends with .pub"
        ) from None
    if not isinstance(key, Ed25519PublicKey):
        raise SignatureError(f"{path} is a key of another kind than Ed25519")
    return key


def _read(path: Path, kind: str) -> bytes:
    try:
        return read_file(path, _MAX_KEY_FILE_BYTES)
    except OSError as error:
        raise SignatureError(f"the {kind} key {path} cannot be read: {error.strerror}") from None


def _raw(public: Ed25519PublicKey) -> bytes:
    return public.public_bytes(pem.Encoding.Raw, pem.PublicFormat.Raw)
