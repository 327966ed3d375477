"""The record of a release for a public registry: its schema's fields, and no invented statement."""

from __future__ import annotations

import pytest
import yaml

import neyman as ny
from commands import answered
from neyman.display import registry_text
from neyman.display.report.deployment_record import UNKNOWN, pyramid, record
from plans import SMALL, release

pytestmark = pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")
# The registry's schema at the commit that the module names: required and optional fields.
REQUIRED = {
    "": {"status", "registry_authors", "tier", "deployment"},
    "deployment": {
        "name",
        "data_curator",
        "description",
        "intended_use",
        "data_product_type",
        "data_product_region",
        "publication_date",
    },
    "dp_flavor": {"name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {"privacy_unit", "privacy_parameters"},
    "model": {"model_name"},
    "accounting": {"post_processing", "composition"},
    "implementation": {"pre_processing_eda_hyperparameter_tuning", "mechanisms", "justification"},
}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registry")
    ledger = ny.Ledger(folder / "ledger.db")
    ledger.create("people@1", protects="person", neighboring="replace-one", cap=1)
    (folder / "people.csv").write_text("race\nwhite\nblack\n")
    return release(ny.Plan.from_dict(SMALL), folder / "people.csv", ledger, folder / "out")


def test_the_record_has_every_field_that_the_schema_requires(published):
    content = record(published.receipt)
    deployment = content["deployment"]
    assert set(content) == REQUIRED[""]
    assert REQUIRED["deployment"] <= set(deployment)
    for part in ("dp_flavor", "privacy_loss", "model", "accounting", "implementation"):
        assert REQUIRED[part] <= set(deployment[part]), part


def test_what_the_receipt_does_not_know_is_labeled(published):
    deployment = record(published.receipt)["deployment"]
    for name in ("data_curator", "intended_use", "data_product_region", "publication_date"):
        assert deployment[name].startswith(UNKNOWN)
    assert UNKNOWN in deployment["implementation"]["justification"]
    assert record(published.receipt)["tier"] == 1


def test_a_declared_publisher_and_the_day_of_the_charge_are_not_called_unknown(published):
    receipt = published.receipt
    plan = receipt.plan | {"publisher": "Office <of> Statistics"}
    deployment = record(receipt.model_copy(update={"plan": plan}))["deployment"]
    assert deployment["data_curator"] == "Office <of> Statistics"
    said = f"; the ledger was charged on {receipt.ledger.date} (UTC)"
    assert receipt.ledger.date
    assert deployment["publication_date"].endswith(said)


def test_the_numbers_are_upper_ends_rounded_up(published):
    upper = published.receipt.guarantee.rho.upper
    rho = record(published.receipt)["deployment"]["privacy_loss"]["privacy_parameters"]["rho"]
    assert upper <= rho <= upper * 1.00001


def test_the_rows_of_a_unit_are_those_of_all_private_tables_together(published):
    receipt = published.receipt
    unit = {"protects": "person", "id": "who", "rows": 3}
    plan = receipt.plan | {"unit": unit, "tables": {"people": {"rows": 1}, "drugs": {"rows": 5}}}
    several = receipt.model_copy(update={"plan": plan})
    said = record(several)["deployment"]["privacy_loss"]["privacy_unit_description"]
    assert "all rows of one person (9 rows at most)" in said
    assert any("at most 9 rows" in statement for _, statement, _ in pyramid(several))


def test_consistent_and_public_tables_are_not_counted_as_noisy_tables(tmp_path):
    plan = dict(SMALL) | {"consistency": {"method": "least-squares"}}
    total = {"name": "all", "measure": "count", "public": {"all": 2}}
    plan["query"] = [*SMALL["query"], total]
    ledger = ny.Ledger(tmp_path / "ledger.db")
    ledger.create("people@1", protects="person", neighboring="replace-one", cap=1)
    (tmp_path / "people.csv").write_text("race\nwhite\nblack\n")
    published_tables = release(
        ny.Plan.from_dict(plan), tmp_path / "people.csv", ledger, tmp_path / "out"
    )
    noisy = len(SMALL["query"])
    said = record(published_tables.receipt)["deployment"]["description"]
    assert said == f"{noisy} noisy table{'s' * (noisy > 1)} of people@1"


def test_the_text_is_yaml_of_the_record_and_hostile_names_stay_text(published):
    hostile = published.receipt.model_copy(update={"dataset": 'a: "b"\n# c\nstatus: Approved'})
    for receipt in (published.receipt, hostile):
        assert yaml.safe_load(registry_text(receipt)) == record(receipt)


def test_each_layer_of_the_pyramid_says_what_is_left_to_the_agency(published):
    layers = pyramid(published.receipt)
    assert [topic.partition(":")[0] for topic, _, _ in layers] == ["Top"] * 2 + ["Middle"] * 3 + [
        "Bottom"
    ]
    assert all(statement and left for _, statement, left in layers)


def test_the_command_writes_the_record(published, tmp_path):
    path = tmp_path / "registry.yaml"
    answered("report", published.folder, "--registry", "--out", path)
    assert path.read_text() == registry_text(published.receipt)
