"""Signatures, ours and OpenSSH's: whose receipt it is, and that nothing of it was changed."""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_public_key,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import neyman as ny
from attacks import SIZE
from neyman.publishing import (
    SIGNATURE,
    SSH_SIGNATURE,
    SignatureError,
    allowed_signer,
    check_signature,
    check_ssh_signature,
    create_key,
    sign,
    verify,
)
from plans import SMALL, release

pytestmark = pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")

RECEIPT = b'{"schema": "neyman-receipt/1"}\n'


@pytest.fixture
def key(tmp_path: Path) -> Path:
    create_key(tmp_path / "custodian")
    return tmp_path / "custodian"


def test_a_signed_receipt_stands_and_says_by_whom(key: Path, tmp_path: Path):
    public, digits = create_key(tmp_path / "another")
    assert public == tmp_path / "another.pub"
    signed = sign(RECEIPT, tmp_path / "another")
    assert check_signature(RECEIPT, signed, public) == f"signed by {public} ({digits})"
    alone = check_signature(RECEIPT, signed)
    assert digits in alone
    assert "which came with the release" in alone
    with pytest.raises(SignatureError, match=r"someone else has signed it"):
        check_signature(RECEIPT, signed, f"{key}.pub")


def test_the_signature_is_that_of_rfc_8032(key: Path):
    content = json.loads(sign(RECEIPT, key))
    assert content["algorithm"] == "ed25519"
    public = load_pem_public_key(Path(f"{key}.pub").read_bytes())
    assert isinstance(public, ed25519.Ed25519PublicKey)
    public.verify(bytes.fromhex(content["signature"]), RECEIPT)
    assert public.public_bytes_raw().hex() == content["public_key"]
    assert sign(RECEIPT, key) == sign(RECEIPT, key)


def test_keys_are_private_and_not_replaced(key: Path):
    assert stat.S_IMODE(os.stat(key).st_mode) == 0o600
    before = key.read_bytes(), Path(f"{key}.pub").read_bytes()
    with pytest.raises(SignatureError, match="already exists"):
        create_key(key)
    Path(f"{key}.pub").rename(f"{key}.old")
    with pytest.raises(SignatureError, match="already exists"):
        create_key(key)
    assert key.read_bytes() == before[0]
    with pytest.raises(SignatureError, match="cannot be written: No such file"):
        create_key(key.parent / "nowhere" / "key")


def test_a_key_that_others_may_read_does_not_sign(key: Path):
    os.chmod(key, 0o640)
    with pytest.raises(SignatureError, match="may be read by others: chmod 600"):
        sign(RECEIPT, key)


def test_what_is_no_key_is_refused_in_words(key: Path, tmp_path: Path):
    other = ec.generate_private_key(ec.SECP256R1())
    locked = ed25519.Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    cases = {
        "text": (b"hello", "holds no private key in PEM"),
        "public": (Path(f"{key}.pub").read_bytes(), "holds no private key in PEM"),
        "curve": (
            other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            "is a key of another kind",
        ),
        "locked": (locked, "is encrypted"),
    }
    for name, (content, says) in cases.items():
        (tmp_path / name).write_bytes(content)
        os.chmod(tmp_path / name, 0o600)
        with pytest.raises(SignatureError, match=says):
            sign(RECEIPT, tmp_path / name)
    with pytest.raises(SignatureError, match="cannot be read: No such file"):
        sign(RECEIPT, tmp_path / "missing")
    signed = sign(RECEIPT, key)
    for name in ("text", "curve", "missing"):
        with pytest.raises(SignatureError, match=name):
            check_signature(RECEIPT, signed, tmp_path / name)


def test_a_key_with_changed_bytes_is_refused_in_words(key: Path, tmp_path: Path):
    draw, signed, refused = random.Random(5), sign(RECEIPT, key), 0
    for path in (key, key.with_name(f"{key.name}.pub")):
        first, *lines, last = path.read_text().splitlines()
        for _ in range(300):
            content = bytearray(base64.b64decode("".join(lines)))
            for _ in range(draw.randrange(1, 3)):
                content[draw.randrange(len(content) - 32)] = draw.randrange(256)
            product = tmp_path / "made"
            product.write_text(f"{first}\n{base64.b64encode(content).decode()}\n{last}\n")
            product.chmod(0o600)
            try:
                sign(RECEIPT, product) if path == key else check_signature(RECEIPT, signed, product)
            except SignatureError:
                refused += 1
    assert refused > 300


@settings(max_examples=100 * SIZE, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_is_refused_and_nothing_else_raises(key: Path, attempts, data: st.DataObject):
    attempts(1)
    signed = sign(RECEIPT, key)
    kind = data.draw(st.sampled_from(["receipt", "signature", "cut", "junk"]))
    receipt, mark = bytearray(RECEIPT), bytearray(signed)
    if kind == "junk":
        mark = bytearray(data.draw(st.binary(max_size=50)))
    elif kind == "cut":
        del mark[data.draw(st.integers(0, len(mark) - 3)) :]
    else:
        changed = receipt if kind == "receipt" else mark
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        check_signature(bytes(receipt), bytes(mark), f"{key}.pub")
    except SignatureError:
        return
    # Blanks, and the case of a digit, may differ.
    assert kind == "signature"
    assert lower(mark) == lower(signed)


def lower(signature: bytes | bytearray) -> dict[str, str]:
    content = json.loads(bytes(signature))
    return {name: content[name].lower() for name in ("public_key", "signature")}


NAMESPACE = "neyman-receipt"
KEYGEN = shutil.which("ssh-keygen")


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> Path:
    """A folder with a key, its public half, and another key."""
    folder = tmp_path_factory.mktemp("keys")
    create_key(folder / "custodian")
    create_key(folder / "other")
    return folder


@pytest.fixture(scope="module")
def signed(keys) -> dict[str, Path]:
    """A release that each of the two keys has signed."""
    plan, data = ny.Plan.from_dict(SMALL), keys / "people.csv"
    data.write_text("race\nwhite\nblack\n")
    for name in ("custodian", "other"):
        with ny.Ledger(keys / f"{name}.db") as ledger:
            ledger.create("people@1", protects="person", neighboring="replace-one", cap=1)
            release(plan, data, ledger, keys / f"of {name}", sign=keys / name)
    return {name: keys / f"of {name}" for name in ("custodian", "other")}


def both(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "receipt.json").read_bytes(), (folder / SSH_SIGNATURE).read_bytes()


def accepts(folder: Path, content: bytes, signature: bytes, signer: str, space=NAMESPACE) -> bool:
    """Whether ssh-keygen accepts a signature of the content by the signer of a line."""
    (folder / "allowed").write_text(signer)
    (folder / "signature").write_bytes(signature)
    command = [KEYGEN, "-Y", "verify", "-f", "allowed", "-I", "custodian", "-n", space]
    command += ["-s", "signature"]
    done = subprocess.run(command, cwd=folder, input=content, capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.skipif(KEYGEN is None, reason="needs ssh-keygen")
def test_ssh_keygen_accepts_the_receipt_and_nothing_else(keys, signed, tmp_path):
    receipt, signature = both(signed["custodian"])
    signer = allowed_signer(keys / "custodian.pub")
    assert accepts(tmp_path, receipt, signature, signer)
    assert not accepts(tmp_path, receipt + b" ", signature, signer)
    assert not accepts(tmp_path, receipt, signature, allowed_signer(keys / "other.pub"))
    assert not accepts(tmp_path, *both(signed["other"]), signer)
    assert not accepts(tmp_path, receipt, signature, signer, "git")


@pytest.mark.skipif(KEYGEN is None, reason="needs ssh-keygen")
def test_what_ssh_keygen_signs_with_a_key_is_accepted_here(tmp_path):
    run = [KEYGEN, "-q", "-t", "ed25519", "-N", "", "-f", "key"]
    subprocess.run(run, cwd=tmp_path, check=True)
    (tmp_path / "receipt.json").write_bytes(RECEIPT)
    run = [KEYGEN, "-q", "-Y", "sign", "-f", "key", "-n", NAMESPACE, "receipt.json"]
    subprocess.run(run, cwd=tmp_path, check=True, capture_output=True)
    signature = (tmp_path / "receipt.json.sig").read_bytes()
    assert "which came with the release" in check_ssh_signature(RECEIPT, signature)
    with pytest.raises(SignatureError, match="changed"):
        check_ssh_signature(RECEIPT + b" ", signature)


def test_a_signature_names_its_key_and_refuses_another(keys, signed):
    receipt, signature = both(signed["custodian"])
    assert "custodian.pub" in check_ssh_signature(receipt, signature, keys / "custodian.pub")
    with pytest.raises(SignatureError, match="is signed by the key"):
        check_ssh_signature(receipt, signature, keys / "other.pub")


@settings(max_examples=200)
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_changed_bit_is_refused_unless_the_text_means_the_same(keys, signed, place, bit):
    receipt, before = both(signed["custodian"])
    signature = bytearray(before)
    signature[place % len(signature)] ^= 1 << bit
    same = b"".join(signature.split()) == b"".join(before.split())
    try:
        check_ssh_signature(receipt, bytes(signature), keys / "custodian.pub")
    except SignatureError:
        assert not same
    else:
        assert same


def test_every_bit_of_the_last_line_counts(keys, signed):
    receipt, signature = both(signed["custodian"])
    end = signature.rindex(b"\n-----END")
    for place in range(end - 6, end):
        for bit in range(8):
            changed = bytearray(signature)
            changed[place] ^= 1 << bit
            if changed.split() == signature.split():
                continue
            with pytest.raises(SignatureError):
                check_ssh_signature(receipt, bytes(changed), keys / "custodian.pub")


@pytest.mark.parametrize("text", [b"", b"\xff", b"-----BEGIN SSH SIGNATURE-----", b"x" * 200_000])
def test_what_is_no_signature_is_refused_in_words(text):
    with pytest.raises(SignatureError, match="cannot be read"):
        check_ssh_signature(RECEIPT, text)


def test_a_signed_release_has_both_signatures_and_fails_if_one_is_of_another_receipt(
    keys, signed, tmp_path
):
    out = tmp_path / "out"
    shutil.copytree(signed["custodian"], out)
    content, public = (out / "receipt.json").read_bytes(), keys / "custodian.pub"
    assert check_ssh_signature(content, (out / SSH_SIGNATURE).read_bytes())
    for key in (public, None):
        assert [check.name for check in verify(out, key=key) if not check.ok] == []
    (out / SIGNATURE).write_bytes(sign(content, keys / "other"))
    (both,) = (check for check in verify(out) if not check.ok)
    assert both.name == "signature"
    assert "two signatures are by two keys" in both.detail
    shutil.copy(signed["custodian"] / SIGNATURE, out)
    shutil.copy(signed["other"] / SSH_SIGNATURE, out)  # of another receipt, by another key
    assert [check.name for check in verify(out, key=public) if not check.ok] == ["signature"]
