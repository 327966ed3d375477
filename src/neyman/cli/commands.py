"""Register commands: functions that return an answer, which one printer writes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from copy import copy
from typing import Annotated, Any, TypeVar, get_args, get_origin

import typer

from neyman.cli.terminal import Answer, failing, print_answer

_Command = TypeVar("_Command", bound=Callable[..., Answer])

app = typer.Typer(
    help="Measure, calibrate, publish, and verify differential privacy.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_GROUPS = {"": app} | {
    name: typer.Typer(help=text, no_args_is_help=True)
    for name, text in {
        "plan": "Write a first plan, check it, split its budget, or print its schema.",
        "data": "Check private data before a run.",
        "ledger": "Manage and audit privacy budgets.",
    }.items()
}
for _name in filter(None, _GROUPS):
    app.add_typer(_GROUPS[_name], name=_name)


def command(
    words: str,
    example: str,
    *,
    document: bool = True,
    interrupted: str = "the command was stopped before its end",
) -> Callable[[_Command], _Command]:
    """Register a function as a command. Positional parameters are arguments, the others options.

    The docstring is the help, and its list of arguments the help of each. A command that has a
    parameter ``json`` learns what was asked for.

    Args:
        words: the command's group and name, such as ``ledger show``.
        example: arguments of an example, which the help prints.
        document: False if the command has no ``--json``.
        interrupted: the message after Ctrl-C or SIGTERM, about what the command may have left
            behind.
    """

    def register(function: _Command) -> _Command:
        text, _, section = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")
        texts = dict(re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.M))
        given = inspect.signature(function, eval_str=True).parameters
        parameters = [
            _parameter(each, texts[name]) for name, each in given.items() if name != "json"
        ]
        if document:
            flag = inspect.Parameter("json", _OPTION, default=False, annotation=bool)
            help_text = "Print one JSON document on stdout."
            parameters.append(_parameter(flag, help_text))

        def run(*, json: bool = False, **values: Any) -> None:
            own = {"json": json} if "json" in given else {}
            with failing(json, interrupted):
                print_answer(function(**values, **own), json)

        run.__doc__ = text
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.__dict__["__signature__"] = inspect.Signature(parameters)
        group, _, name = words.rpartition(" ")
        _GROUPS[group].command(name, epilog=f"Example: neyman {words} {example}".strip())(run)
        return function

    return register


_OPTION = inspect.Parameter.KEYWORD_ONLY


def _parameter(parameter: inspect.Parameter, text: str) -> inspect.Parameter:
    """Return a parameter with its help. A flag that is off by default has no opposite."""
    kind, option = parameter.annotation, parameter.kind is _OPTION
    if get_origin(kind) is Annotated:
        kind, given = get_args(kind)
        described = copy(given)
    elif option:
        off = [f"--{parameter.name.replace('_', '-')}"] if parameter.default is False else []
        described = typer.Option(*off)
    else:
        described = typer.Argument()
    described.help = " ".join(text.split())
    return parameter.replace(kind=_OPTION, annotation=Annotated[kind, described])
