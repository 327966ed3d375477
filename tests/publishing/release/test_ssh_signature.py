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
    SSH_SIGNATURE,
    SignatureError,
    allowed_signer,
    check_ssh_signature,
    create_key,
)
from neyman.publishing.release.ssh_signature import NAMESPACE, ssh_sign
from neyman.publishing.release.verify import verify
from plans import SMALL, release

KEYGEN = shutil.which("ssh-keygen")
RECEIPT = b'{"schema": "neyman-receipt/1"}\n'


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> Path:
    """A folder with a key, its public half, and another key."""
    folder = tmp_path_factory.mktemp("keys")
    create_key(folder / "custodian")
    create_key(folder / "other")
    return folder


def accepts(folder: Path, content: bytes, signature: bytes, signer: str, space=NAMESPACE) -> bool:
    """Whether ssh-keygen accepts a signature of the content by the signer of a line."""
    (folder / "allowed").write_text(signer)
    (folder / "signature").write_bytes(signature)
    command = [KEYGEN, "-Y", "verify", "-f", "allowed", "-I", "custodian", "-n", space]
    command += ["-s", "signature"]
    done = subprocess.run(command, cwd=folder, input=content, capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.skipif(KEYGEN is None, reason="needs ssh-keygen")
def test_ssh_keygen_accepts_the_receipt_and_nothing_else(keys, tmp_path):
    """Neither other bytes, nor another key, nor another purpose."""
    signature = ssh_sign(RECEIPT, keys / "custodian")
    signer = allowed_signer(keys / "custodian.pub")
    assert accepts(tmp_path, RECEIPT, signature, signer)
    assert not accepts(tmp_path, RECEIPT + b" ", signature, signer)
    assert not accepts(tmp_path, RECEIPT, signature, allowed_signer(keys / "other.pub"))
    assert not accepts(tmp_path, RECEIPT, ssh_sign(RECEIPT, keys / "other"), signer)
    assert not accepts(tmp_path, RECEIPT, signature, signer, "git")


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


def test_a_signature_names_its_key_and_refuses_another(keys):
    signature = ssh_sign(RECEIPT, keys / "custodian")
    assert "custodian.pub" in check_ssh_signature(RECEIPT, signature, keys / "custodian.pub")
    with pytest.raises(SignatureError, match="is signed by the key"):
        check_ssh_signature(RECEIPT, signature, keys / "other.pub")


@settings(max_examples=200)
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_changed_bit_is_refused_unless_the_text_means_the_same(keys, place, bit):
    """White space and nothing else may change: it is not a part of what the lines encode."""
    signature = bytearray(ssh_sign(RECEIPT, keys / "custodian"))
    signature[place % len(signature)] ^= 1 << bit
    same = b"".join(signature.split()) == b"".join(ssh_sign(RECEIPT, keys / "custodian").split())
    try:
        check_ssh_signature(RECEIPT, bytes(signature), keys / "custodian.pub")
    except SignatureError:
        assert not same
    else:
        assert same


def test_every_bit_of_the_last_line_counts(keys):
    """Decoding ignores the last bits of base64 where its length is not a multiple of three."""
    signature = ssh_sign(RECEIPT, keys / "custodian")
    end = signature.rindex(b"\n-----END")
    for place in range(end - 6, end):
        for bit in range(8):
            changed = bytearray(signature)
            changed[place] ^= 1 << bit
            if changed.split() == signature.split():
                continue
            with pytest.raises(SignatureError):
                check_ssh_signature(RECEIPT, bytes(changed), keys / "custodian.pub")


@pytest.mark.parametrize("text", [b"", b"\xff", b"-----BEGIN SSH SIGNATURE-----", b"x" * 200_000])
def test_what_is_no_signature_is_refused_in_words(text):
    with pytest.raises(SignatureError, match="cannot be read"):
        check_ssh_signature(RECEIPT, text)


@pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")
def test_a_signed_release_has_both_signatures_and_fails_if_one_is_of_another_receipt(
    keys, tmp_path
):
    ledger = ny.Ledger(tmp_path / "ledger.db")
    ledger.create("people@1", protects="person", neighboring="replace-one", cap=1)
    (tmp_path / "people.csv").write_text("race\nwhite\nblack\n")
    out = tmp_path / "out"
    plan = ny.Plan.from_dict(SMALL)
    release(plan, tmp_path / "people.csv", ledger, out, sign=keys / "custodian")
    content = (out / "receipt.json").read_bytes()
    assert check_ssh_signature(content, (out / SSH_SIGNATURE).read_bytes())

    def failures():
        checks = verify(out, key=keys / "custodian.pub")
        return [check.name for check in checks if not check.ok]

    assert failures() == []
    assert [check.name for check in verify(out) if not check.ok] == []
    (out / SSH_SIGNATURE).write_bytes(ssh_sign(content, keys / "other"))
    assert failures() == ["signature"]
    (both,) = (check for check in verify(out) if not check.ok)  # also where no key is given
    assert both.name == "signature"
    assert "two signatures are by two keys" in both.detail
    (out / SSH_SIGNATURE).write_bytes(ssh_sign(content + b" ", keys / "custodian"))
    assert failures() == ["signature"]
