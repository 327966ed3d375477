"""Write a receipt's signature in OpenSSH's format, for ``ssh-keygen -Y verify``.

The format is OpenSSH's PROTOCOL.sshsig. The key signs a block with the namespace and the SHA-512 of
the receipt's bytes. The Ed25519 key is the key of ``receipt.sig``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
import textwrap
from pathlib import Path

from neyman.publishing.release.signing import SignatureError, check_signer, public_bytes, sign_bytes

SSH_SIGNATURE = "receipt.json.sshsig"  # the file beside the receipt
NAMESPACE = "neyman-receipt"  # what the signature is for: ``ssh-keygen -Y verify -n`` must name it
PRINCIPAL = "custodian"

_MAGIC = b"SSHSIG"
_FORMAT_VERSION = 1
_KIND = b"ssh-ed25519"
_HASH = b"sha512"
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_MAX_SIGNATURE_BYTES = 100_000


def ssh_sign(receipt: bytes, key: str | Path) -> bytes:
    """Return the bytes of a receipt's signature file, in OpenSSH's armored form."""
    public, mark = sign_bytes(_signed_block(receipt), key)
    blob = (
        _MAGIC
        + struct.pack(">I", _FORMAT_VERSION)
        + _text(_key_blob(public))
        + _text(NAMESPACE.encode())
        + _text(b"")
        + _text(_HASH)
        + _text(_text(_KIND) + _text(mark))
    )
    lines = textwrap.wrap(base64.b64encode(blob).decode(), 70)
    return "\n".join([_BEGIN, *lines, _END, ""]).encode()


def check_ssh_signature(receipt: bytes, signature: bytes, key: str | Path | None = None) -> str:
    """Check an OpenSSH signature as `check_signature` does, with the same result."""
    public, mark = _parts(signature)
    return check_signer(public, mark, _signed_block(receipt), key)


def allowed_signer(key: str | Path, principal: str = PRINCIPAL) -> str:
    """Return the line of a public key (PEM) for ``ssh-keygen -Y verify -I principal``."""
    blob = base64.b64encode(_key_blob(public_bytes(key))).decode()
    return f'{principal} namespaces="{NAMESPACE}" {_KIND.decode()} {blob}\n'


def _signed_block(receipt: bytes) -> bytes:
    """Return the bytes that the key signs for a receipt."""
    digest = hashlib.sha512(receipt).digest()
    return _MAGIC + _text(NAMESPACE.encode()) + _text(b"") + _text(_HASH) + _text(digest)


def _key_blob(public: bytes) -> bytes:
    return _text(_KIND) + _text(public)


def _text(content: bytes) -> bytes:
    """Encode a string of the protocol: its length in four bytes, then its bytes."""
    return struct.pack(">I", len(content)) + content


def _parts(signature: bytes) -> tuple[bytes, bytes]:
    """Return the public key and the signature in an OpenSSH signature file.

    Refuse a file whose other fields are not as `ssh_sign` writes them.
    """
    try:
        text = signature[:_MAX_SIGNATURE_BYTES].decode("ascii").strip()
        if not (text.startswith(_BEGIN) and text.endswith(_END)):
            raise ValueError("it has no lines BEGIN and END SSH SIGNATURE")
        body = "".join(text.removeprefix(_BEGIN).removesuffix(_END).split())
        blob = base64.b64decode(body, validate=True)
        if base64.b64encode(blob).decode() != body:  # decoding ignores the last bits
            raise ValueError("its last characters encode no whole byte")
        if blob[:6] != _MAGIC or struct.unpack(">I", blob[6:10]) != (_FORMAT_VERSION,):
            raise ValueError("it is of another version")
        fields = _texts(blob[10:], 5)
        kind, public = _texts(fields[0], 2)
        mark_kind, mark = _texts(fields[4], 2)
        if (kind, mark_kind) != (_KIND, _KIND):
            raise ValueError("its key is not Ed25519")
        if (fields[1], fields[2], fields[3]) != (NAMESPACE.encode(), b"", _HASH):
            raise ValueError(f"it is not for {NAMESPACE} with SHA-512")
    except (ValueError, struct.error, binascii.Error) as error:
        raise SignatureError(f"the OpenSSH signature cannot be read: {error}") from None
    return public, mark


def _texts(content: bytes, count: int) -> list[bytes]:
    """Split ``content`` into exactly ``count`` strings of the protocol."""
    values: list[bytes] = []
    for _ in range(count):
        (size,) = struct.unpack(">I", content[:4])
        if len(content) < 4 + size:
            raise ValueError("it is cut short")
        values.append(content[4 : 4 + size])
        content = content[4 + size :]
    if content:
        raise ValueError("it has more than its fields")
    return values
