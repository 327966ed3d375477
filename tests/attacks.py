"""The tests that attack the product: which they are, how large, and a summary of a run.

`make test` runs them at size 1 with all other tests. `make attack` runs them alone, at the size
NEYMAN_ATTACK. An attack that draws at random makes that many times as many attempts. One that goes
through all cases of its kind makes the same attempts at every size, except that size 1 kills a
release at a third of its steps.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import pytest

__all__ = ["ATTACKS", "SIZE", "Attack", "attack_of", "attempts", "summary"]

SIZE = int(os.environ.get("NEYMAN_ATTACK") or 1)


class Attack(NamedTuple):
    """A kind of attack."""

    unit: str
    tests: tuple[str, ...]


ATTACKS = {
    "races for one budget": Attack(
        "processes and charges that race",
        (
            "ledger/test_ledger_races.py::*", "ledger/test_ledger_histories.py::*",
            "ledger/test_ledger_faults.py::test_racing_*",
            "ledger/test_ledger_faults.py::test_the_same_key_finished_by_racing_*",
            "ledger/test_ledger_attack.py::test_begin_and_void_race_*",
            "ledger/test_ledger_attack.py::test_random_spends_*",
            "publishing/release/test_faults.py::test_processes_racing_*",
            "ledger/test_postgres_faults.py::test_racing_*",
            "ledger/test_ledger_location.py::test_racing_*",
        ),
    ),
    "kills": Attack(
        "processes and servers killed",
        (
            "publishing/release/test_faults_kills.py::*",
            "ledger/test_ledger_location.py::test_confirming_killed_*",
            "publishing/release/test_session.py::test_a_process_that_is_killed_*",
            "publishing/release/test_session.py::test_what_a_killed_process_left_*",
            "publishing/engines/test_engine_processes.py::test_*_kill*",
            "publishing/release/test_faults.py::test_a_spark_driver_that_is_killed_*",
            "ledger/test_ledger_faults.py::test_a_writer_killed_*",
            "ledger/test_ledger_faults.py::test_killed_*",
            "ledger/test_postgres_faults.py::test_a_*",
            "ledger/test_postgres_faults.py::test_files_*",
            "ledger/test_postgres_faults.py::test_what_was_granted_*",
        ),
    ),
    "disks and folders that fail": Attack(
        "runs",
        (
            "publishing/release/test_faults.py::test_a_disk_*",
            "publishing/release/test_faults.py::test_files_*",
            "publishing/release/test_faults.py::test_folders_*",
            "ledger/test_ledger_faults.py::test_a_failing_disk_*",
            "ledger/test_ledger_faults.py::test_a_full_disk_*",
            "ledger/test_ledger_faults.py::test_a_ledger_without_permission_*",
        ),
    ),
    "copies, moves and rights of a ledger": Attack(
        "attempts",
        (
            "publishing/release/test_faults_copies.py::*",
            "ledger/test_ledger_attack.py::test_[acnow]*",
            "ledger/test_ledger_chain.py::test_a_restored_*",
            "ledger/test_ledger_chain.py::test_another_ledger_*",
            "ledger/test_ledger_sqlite.py::test_*", "ledger/test_ledger_location.py::*",
            "ledger/test_postgres_attack.py::*",
            "ledger/test_postgres.py::test_the_database_refuses_*",
            "ledger/test_postgres.py::test_changed_*",
            "analysis/training/test_train.py::test_an_older_copy_*",
            "analysis/training/test_train.py::test_one_of_two_equal_copies_*",
            "analysis/training/test_train.py::test_a_copy_that_draws_*",
            "analysis/training/test_train.py::test_a_publication_that_fails_*",
        ),
    ),
    "neighboring data, by brute force": Attack(
        "pairs of tables",
        (
            "publishing/plan/test_shifts.py::*",
            "publishing/plan/test_scenarios.py::test_the_tables_that_can_move_*",
            "publishing/engines/test_neighbors.py::*",
            "publishing/engines/test_joined_tables.py::test_*_declared*",
            "publishing/tables/test_estimates.py::test_what_is_seen_*",
        ),
    ),
    "forged releases and ledgers": Attack(
        "forgeries",
        (
            "publishing/release/test_verify.py::*", "publishing/release/test_verify_files.py::*",
            "publishing/release/test_signing.py::test_a_signed_release_has_both_signatures_*",
            "publishing/release/test_signing.py::test_any_change_*",
            "ledger/test_ledger_chain.py::test_*change*",
            "ledger/test_ledger_chain.py::test_a_chain_written_anew_*",
            "fuzz/test_fuzz_ledgers.py::test_a_*", "fuzz/test_fuzz_releases.py::test_any_bytes_*",
            "fuzz/test_fuzz_releases.py::test_any_fields_*",
        ),
    ),
    "hostile plans, files and names": Attack(
        "inputs",
        (
            "publishing/release/test_table_files.py::test_what_csv_shows_*",
            "cli/test_cli.py::test_no_text_of_others_*", "publishing/engines/test_data_files.py::*",
            "publishing/plan/test_public_keys.py::*",
            "publishing/engines/test_engine_processes.py::*",
            "fuzz/test_fuzz_ledgers.py::test_hostile_*", "fuzz/test_fuzz_releases.py::test_*",
            "publishing/engines/test_databases.py::test_no_code_of_*",
            "publishing/engines/test_databases.py::test_a_domain_of_*",
            "ledger/test_ledger_attack.py::test_whatever_is_named_*",
            "display/test_hostile_texts.py::*", "browser/test_hostile_pages.py::*",
        ),
    ),
    "curves, against independent truth": Attack(
        "answers of which none is on the unsafe side",
        (
            "fuzz/test_fuzz_groups.py::*", "fuzz/test_fuzz_selection.py::*",
            "fuzz/test_fuzz_shuffling.py::*", "fuzz/test_fuzz_training.py::*",
        ),
    ),
    "audits of the release path": Attack(
        "draws of noise below published tables",
        ("auditing/test_release_path.py::test_the_release_path_*",),
    ),
    "the samplers of noise": Attack(
        "draws held against exact distributions",
        ("noise/test_samplers.py::*", "noise/test_noise_table.py::*", "noise/test_bits.py::*"),
    ),
}  # fmt: skip
"""A test belongs to the first attack that has a pattern for it."""


def attack_of(test: str) -> str | None:
    """Return the name of the attack that a test belongs to, by its path and name, or None."""
    for name, attack in ATTACKS.items():
        if any(fnmatchcase(test.partition("[")[0], f"tests/{pattern}") for pattern in attack.tests):
            return name
    return None


def attempts(item: pytest.Item) -> Callable[[int], None]:
    """Return a function that adds to the number of attempts that a test reports."""

    def add(number: int) -> None:
        before = dict(item.user_properties).get("attempts", 0)
        others = [each for each in item.user_properties if each[0] != "attempts"]
        item.user_properties[:] = [*others, ("attempts", int(before) + int(number))]  # pyright: ignore[reportArgumentType]

    return add


def summary(reports: Iterable[Any]) -> list[str]:
    """Return the lines of the summary, from the reports of a run. A test is one attempt or more."""
    ends: dict[str, Counter[str]] = defaultdict(Counter)
    for report in reports:
        name = attack_of(report.nodeid)
        if name is None or (report.when != "call" and report.outcome == "passed"):
            continue
        ends[name][report.outcome] += 1
        if report.outcome != "skipped":
            ends[name]["attempts"] += dict(report.user_properties).get("attempts", 1)
    if not ends:
        return []
    lines = [f"{'':<37}{'tests':>7}{'held':>7}{'skipped':>9}{'attempts':>14}"]
    for name, attack in ATTACKS.items():
        result = ends[name]
        tests = result["passed"] + result["failed"]
        numbers = f"{tests:>7}{result['passed']:>7}{result['skipped']:>9}{result['attempts']:>14,}"
        fails = "  DOES NOT HOLD" if result["failed"] else ""
        lines.append(f"{name:<37}{numbers} {attack.unit}{fails}")
    return lines
