"""A receipt's signature in OpenSSH's form: `ssh-keygen` accepts it, and nothing changed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman.publishing import (
    SIGNATURE,
    SSH_SIGNATURE,
    SignatureError,
    allowed_signer,
    check_ssh_signature,
    create_key,
    sign,
    verify,
)
from plans import SMALL, release

pytestmark = pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")

NAMESPACE = "neyman-receipt"
KEYGEN = shutil.which("ssh-keygen")
RECEIPT = b'{"schema": "neyman-receipt/1"}\n'


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
    """The receipt of a release, and its signature."""
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
    """Neither other bytes, nor another key, nor another purpose."""
    receipt, signature = both(signed["custodian"])
    signer = allowed_signer(keys / "custodian.pub")
    assert accepts(tmp_path, receipt, signature, signer)
    assert not accepts(tmp_path, receipt + b" ", signature, signer)
    assert not accepts(tmp_path, receipt, signature, allowed_signer(keys / "other.pub"))
    assert not accepts(tmp_path, *both(signed["other"]), signer)
    assert not accepts(tmp_path, receipt, signature, signer, "git")


@pytest.mark.skipif(KEYGEN is None, reason="needs ssh-keygen")
def test_what_ssh_keygen_signs_with_a_key_is_accepted_here(tmp_path):
    """A signature by another program over the same bytes, with its own key."""
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
    """White space and nothing else may change: it is not a part of what the lines encode."""
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
    """Decoding ignores the last bits of base64 where its length is not a multiple of three."""
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
