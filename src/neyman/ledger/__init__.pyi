"""The names of this package that the layers above, users, and tests import."""

from neyman.ledger.chain import KINDS as KINDS
from neyman.ledger.chain import START as START
from neyman.ledger.chain import Checkpoint as Checkpoint
from neyman.ledger.chain import digest as digest
from neyman.ledger.chain import line_between as line_between
from neyman.ledger.database import VERSION as VERSION
from neyman.ledger.ledger import Ledger as Ledger
from neyman.ledger.postgres.connection import Address as Address
from neyman.ledger.records import Account as Account
from neyman.ledger.records import BudgetRefused as BudgetRefused
from neyman.ledger.records import ChargedError as ChargedError
from neyman.ledger.records import Entry as Entry
from neyman.ledger.records import LedgerError as LedgerError
from neyman.ledger.rows import Damage as Damage
from neyman.ledger.sqlite.store import SQLiteFile as SQLiteFile
from neyman.ledger.throwaway import NOTICE as NOTICE
from neyman.ledger.turn import file_turn as file_turn
from neyman.ledger.units import DELTA as DELTA
from neyman.ledger.units import UNIT as UNIT
