"""Define receipts as models: the fields of ``receipt.json``.

There are four kinds: for a release, an estimate, a test, and a training run. Each has the fields of
`BaseReceipt`. An absent field has its default and stays out of the JSON. Only `verify` refuses
extra fields. It compares the file itself with the fields that follow from the plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, KeysView, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    model_validator,
)

from neyman.accounting.semantics.budget import PlanBudget, budget_of
from neyman.ledger.records import Approval, Balance
from neyman.numerics.relation import Neighboring
from neyman.publishing.consistency.adjusted_tables import Consistent
from neyman.publishing.plan.clip_search import ROWS_TABLE
from neyman.publishing.plan.document import other_schema
from neyman.publishing.plan.field_types import Several, Strict
from neyman.publishing.plan.hierarchy import ALL
from neyman.publishing.plan.plan_fields import ConsistencyMethod
from neyman.storage.visible_text import visible

RECEIPT = "receipt.json"
SCHEMA = "neyman-receipt/1"

Number = int | float | Literal["inf", "-inf"]  # a number of a receipt. JSON has no infinity


def check_format(content: object, own: str) -> None:
    """Raise ValueError for content, or a plan in it, of another format than ``own``."""
    fields = cast(Mapping[str, Any], content if isinstance(content, Mapping) else {})
    if fields.get("schema") != own:
        versions = fields.get("versions")
        said = cast(Mapping[str, Any], versions if isinstance(versions, Mapping) else {})
        raise ValueError(
            f"receipt has the format {fields.get('schema')!r:.80}, written by neyman "
            f"{said.get('neyman')!r:.30}, and this version of neyman reads {own!r}: "
            "nothing was changed; use the version that wrote it"
        )
    plan = fields.get("plan")
    if isinstance(plan, Mapping) and (reason := other_schema(cast(Any, plan).get("schema", 2))):
        raise ValueError(reason)


class ReceiptPart(Strict):
    """Represent a part of a receipt. Only fields that were set are written."""

    model_config = ConfigDict(extra="ignore")

    def to_dict(self) -> dict[str, Any]:
        """Return the part as JSON types, in the order of the file."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Ends(ReceiptPart):
    """Hold the certified lower and upper bounds of a number."""

    lower: Number
    upper: Number


class EpsilonPoint(ReceiptPart):
    """Bound epsilon at a delta."""

    delta: Number
    lower: Number
    upper: Number


class PowerPoint(ReceiptPart):
    """Bound the power of the best test at a level."""

    level: Number
    lower: Number
    upper: Number


class PosteriorPoint(ReceiptPart):
    """Bound the probability that a posterior exceeds e^epsilon times its counterfactual."""

    attacker: Literal["arbitrary-prior", "knows-the-rest", "true-record"]
    epsilon: Number
    lower: Number
    upper: Number


class Scenario(ReceiptPart):
    """State the risk for some attributes of one record.

    Args:
        no_limit: True if the risk has no limit, because these attributes affect a total that is
            published without noise.
    """

    attributes: Several[str]
    within: str | None
    tables: Several[str]
    rho: Ends
    power: Several[PowerPoint]
    curve: Several[PowerPoint]
    posterior: Several[PosteriorPoint]
    no_limit: bool = False


class RoutePart(ReceiptPart):
    """State how much noise accounting by zCDP alone needs to meet the same budget."""

    rho: str
    variance_ratio: Number
    promise: str


class OutrightPart(ReceiptPart):
    """State the probability that a discovered key is revealed, and the rho of everything else."""

    rho: str
    delta: str


class Guarantee(ReceiptPart):
    """State the guarantee in each vocabulary.

    Args:
        held: attributes that exact totals fix. The guarantee compares two records that agree in
            these attributes. Claims about these attributes have no limit.
    """

    epsilon: Several[EpsilonPoint]
    mu: Ends
    rho: Ends
    total_variation: Ends
    power: Several[PowerPoint]
    curve: Several[PowerPoint]
    zcdp_route: RoutePart | None
    posterior: Several[PosteriorPoint]
    scenarios: Several[Scenario]
    outright: OutrightPart | None = None
    held: Several[str] = ()


class ReceiptUnit(ReceiptPart):
    """State the privacy unit."""

    protects: str
    rows: int


class MechanismPart(ReceiptPart):
    """Describe one table of integers with its exact noise, or with its declared values."""

    query: str
    level: str
    measure: str
    count: int
    share: str
    cells: int | None
    zcdp: str
    standard_error: Number
    half_width_90: Number
    mechanism: dict[str, Any] | None
    public: bool = False
    keys: int | None = None
    delta: str | None = None
    threshold: int | None = None
    outright: str | None = None


def _budget(given: object) -> PlanBudget:
    """Return the budget, read from its kind and its exact numbers as text."""
    if isinstance(given, PlanBudget):
        return given
    if not isinstance(given, Mapping) or "kind" not in given:
        raise ValueError("must be a kind of budget with its numbers")
    try:
        return budget_of(cast(Mapping[str, object], given))
    except TypeError as error:
        # Guards against a budget with fields that no budget has.
        raise ValueError(str(error)) from None


class ReceiptTable(ReceiptPart):
    """Describe a published file of a table. ``sha256`` is "" until the file is written."""

    query: str
    level: str
    path: str
    cells: int
    without_csv: str | None = None
    sha256: str


class ApprovalPart(ReceiptPart):
    """State who approved the plan, as the ledger said at the charge.

    Args:
        date: the UTC day of the approval.
        public: the key that signed it, in hexadecimal digits. "" if it is not signed.
    """

    who: str
    purpose: str
    until: str
    date: str
    public: str
    signature: str


class BalancePart(ReceiptPart):
    """State what the ledger said about the budget of these people. It follows from no plan.

    Args:
        account: the dataset, or the population of an edition.
        spent: its total charge without this release, in the currency.
        left: what its payer may still be charged.
        cap: the account's cap.
        events: the number of the ledger's events at that moment.
    """

    account: str
    spent: str
    left: str
    cap: str
    events: int

    @classmethod
    def of(cls, balance: Balance) -> Self:
        """Return the part of a receipt about a balance of the ledger."""
        account, *amounts, events = balance
        spent, left, cap = map(str, amounts)
        return cls(account=account, spent=spent, left=left, cap=cap, events=events)


class LedgerPart(ReceiptPart):
    """State the charge and the account that paid.

    Args:
        charged: the amount. "nothing" for a call without a ledger, which has no account.
        date: only for a release: the UTC day on which the entry was reserved, as YYYY-MM-DD, by the
            machine's clock. It is "" before the charge, as the entry is.
        note: a warning, if nothing or a throwaway ledger was charged.
        approval: who approved the plan, if someone did.
        balance: what was spent before on these people, and what is left.
    """

    account: str = ""
    entry: str = ""
    currency: str = ""
    charged: str
    charged_delta: str = "0"
    date: str = ""
    throwaway: bool = False
    note: str = ""
    approval: ApprovalPart | None = None
    balance: BalancePart | None = None

    @model_validator(mode="after")
    def _has_payer(self) -> Self:
        if self.charged != "nothing" and not (self.account and self.currency):
            # Guards against half of a charge.
            raise ValueError("a charge needs an account and a currency")
        return self

    @classmethod
    def of(
        cls,
        account: str,
        currency: str,
        charged: object,
        charged_delta: object,
        *,
        entry: object = "",
        throwaway: bool,
    ) -> Self:
        """Return the part. Set the field ``throwaway`` only if True."""
        part = cls(
            account=account,
            entry=str(entry),
            currency=currency,
            charged=str(charged),
            charged_delta=str(charged_delta),
        )
        return part.model_copy(update={"throwaway": True}) if throwaway else part

    def approved(self, approval: Approval) -> Self:
        """Return the part with the approval of the plan."""
        words = ("who", "purpose", "until", "public", "signature")
        own = {word: getattr(approval, word) for word in words} | {"date": approval.when[:10]}
        return self.model_copy(update={"approval": ApprovalPart(**own)})


def _dated(part: LedgerPart) -> LedgerPart:
    if "date" not in part.model_fields_set:
        raise ValueError("it has no field 'date'")
    return part


class TableName(ReceiptPart):
    """Name a table, with the reason if consistency leaves the table out."""

    query: str
    level: str
    why: str | None = None


class ReceiptConsistency(ReceiptPart):
    """Describe how consistent tables were computed."""

    method: ConsistencyMethod
    invariants: Several[TableName]
    left_out: Several[TableName]

    @classmethod
    def of(cls, tables: Consistent) -> ReceiptConsistency:
        """Return the part of a receipt about consistent tables."""
        return cls(
            method=tables.method,
            invariants=tuple(TableName(query=q, level=level) for q, level in tables.invariants),
            left_out=tuple(
                TableName(query=q, level=level, why=why)
                for (q, level), why in tables.left_out.items()
            ),
        )


class ClipNoise(ReceiptPart):
    """State the noise of one table for a discovered clip."""

    query: str
    level: str
    measure: str
    mechanism: dict[str, Any]


class ClipPart(ReceiptPart):
    """Describe a discovered clip, or a discovered bound on rows per unit.

    Args:
        bounds: the name of the query that the clip belongs to. "rows" for the rows per unit.
        histogram: the name of the histogram's table.
        clip: [low, high], in the column's units. For rows, only the high end counts.
        mechanisms: the tables that the clip bounds, with their noise for this clip.
    """

    bounds: str
    histogram: str
    clip: Several[str]
    mechanisms: Several[ClipNoise]


class BaseReceipt(ReceiptPart):
    """Hold the fields that receipts of all kinds have.

    A field can also be read by its name in the file: ``receipt["ledger"]["charged"]``.

    Args:
        schema_version: "schema" in the file.
        neighboring: the neighboring relation of the guarantee.
        ledger: the charge.
        versions: the versions of all software that affects the numbers.
    """

    SCHEMA: ClassVar[str]

    schema_version: str = Field(alias="schema")
    neighboring: Neighboring
    ledger: LedgerPart
    versions: dict[str, str]

    @classmethod
    def read(cls, content: Mapping[str, Any] | Self) -> Self:
        """Read the receipt from the JSON types of ``receipt.json``.

        Raises:
            ValueError: the receipt has another schema, lacks a field, or has a field of another
                type. The message names the field.
        """
        if isinstance(content, cls):
            return content
        check_format(content, cls.SCHEMA)
        try:
            return cls.model_validate(dict(content))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            *path, field = map(str, first["loc"])
            where = f" in {'.'.join(path)}" if path else ""
            if first["type"] == "missing":
                why = f"receipt has no field {field!r}{where}"
            else:
                given = f"{first['input']!r:.80}"
                why = f"receipt's field {field!r}{where} = {given}: {first['msg']}"
            raise ValueError(f"{why}: take receipt.json as it was written") from None

    def __getitem__(self, field: str) -> Any:
        return self.to_dict()[field]

    def __iter__(self) -> Iterator[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return iter(self.to_dict())

    def keys(self) -> KeysView[str]:
        """Return the names of the fields in the file."""
        return self.to_dict().keys()

    def to_bytes(self) -> bytes:
        """Return the file: JSON with sorted names, and a newline at the end."""
        return (json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n").encode()


class Receipt(BaseReceipt):
    """State what a release may reveal, in every vocabulary.

    Args:
        plan: the canonical plan.
        mechanism: for a plan with ``disjoint``, the entire release: the worst of its cases.
    """

    SCHEMA = SCHEMA

    plan: dict[str, Any]
    plan_hash: str
    dataset: str
    unit: ReceiptUnit
    mechanisms: Several[MechanismPart]
    guarantee: Guarantee
    budget: Annotated[
        PlanBudget, PlainValidator(_budget), PlainSerializer(lambda budget: budget.to_dict())
    ]
    tables: Several[ReceiptTable]
    ledger: Annotated[LedgerPart, AfterValidator(_dated)]
    consistency: ReceiptConsistency | None = None
    clips: Several[ClipPart] = ()
    mechanism: dict[str, Any] | None = None

    @property
    def rows_per_unit(self) -> int | None:
        """Return the bound on the rows of a unit that a noisy histogram has set; None without."""
        histogram = f"{ROWS_TABLE}.{ALL}"
        return next((int(one.clip[-1]) for one in self.clips if one.histogram == histogram), None)

    def __repr__(self) -> str:
        plan = f"plan {self.plan_hash[:12]}, entry {self.ledger.entry}"
        return visible(f"<Receipt of {self.dataset}: {plan}>")

    def to_dict(self) -> dict[str, Any]:
        """Return the receipt as JSON types, in the order of the file."""
        content = super().to_dict()
        return dict(sorted(content.items(), key=lambda item: _PLACES.get(item[0], len(_PLACES))))

    def to_bytes(self) -> bytes:
        """Return the file: JSON in UTF-8, indented by one space, with a newline at the end."""
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        return (text + "\n").encode()


FIRST = (
    *("schema", "plan", "plan_hash", "dataset", "unit", "neighboring", "mechanisms"),
    *("guarantee", "budget", "tables", "ledger", "versions"),
)
_PLACES = {name: place for place, name in enumerate(FIRST)}
"""Position of each field in a release's file. Further fields follow."""


class FiniteEpsilon(ReceiptPart):
    """Bound epsilon at a delta. An infinite bound is null."""

    delta: Number
    lower: Number | None
    upper: Number | None


class CallGuarantee(ReceiptPart):
    """State what one mechanism reveals. Each number has both certified bounds."""

    epsilon: Several[FiniteEpsilon]
    power: Several[PowerPoint]


class CallReceipt(BaseReceipt):
    """Represent a receipt of one mechanism.

    Args:
        proof: a reference to the proof of the guarantee.
        conditions: the conditions of the guarantee.
        seeds: null, because a release has no seeds.
    """

    guarantee: CallGuarantee
    proof: str
    conditions: Several[str]
    seeds: None


class StatisticReceipt(CallReceipt):
    """Represent a receipt of a noisy statistic: an estimate or a test.

    Args:
        arguments: the public arguments.
        dataset: "name@version"; null without a ledger.
        mechanism: the released mechanism.
        result: the noisy statistic, and numbers computed from it alone.
    """

    arguments: dict[str, Any]
    dataset: str | None
    mechanism: dict[str, Any]
    result: dict[str, Any]


class EstimateReceipt(StatisticReceipt):
    """Represent the receipt of a private estimate."""

    SCHEMA = "neyman-estimate/1"

    estimator: str


class TestReceipt(StatisticReceipt):
    """Represent the receipt of a private test."""

    SCHEMA = "neyman-test/1"

    test: str


class StepsPart(ReceiptPart):
    """Count the training steps that ran, and the charged steps without a result."""

    run: int
    lost: int


class ParametersPart(ReceiptPart):
    """Describe the file of the trained parameters."""

    path: str
    sha256: str
    shape: Several[int]


class TrainingReceipt(CallReceipt):
    """Represent the receipt of a training run.

    Args:
        terms: all inputs of the run except its data.
        key: the hash of the terms.
        environments: for a network only, the environment of each process of the run, and its
            settings.
    """

    SCHEMA = "neyman-training-receipt/1"

    terms: dict[str, Any]
    key: str
    unit: ReceiptUnit
    steps: StepsPart
    parameters: ParametersPart
    environments: Several[dict[str, Any]] = ()
