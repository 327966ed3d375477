"""The list of commands that the site adds to docs/cli.md, from the commands themselves."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from neyman.cli import app

KINDS = {Path: "path", str: "text", int: "integer", float: "number", bool: ""}
OPENING = """
## Every command

Every argument and option has its default here. `neyman COMMAND -h` prints the same text in a
terminal. Every command also takes `-h` and `--help`. Before a command, `neyman` takes `--version`
(`-V`), `--install-completion` for bash, zsh, fish, and PowerShell, and `--show-completion`, which
prints the script.
"""


def reference() -> str:
    """Return every command with its arguments and options, in Markdown."""
    sections = [OPENING]
    for group, commands in groups():
        if group:
            sections.append(f"### neyman {group}\n\n{commands.help}\n")
        for name, command in commands.commands.items():
            if not hasattr(command, "commands"):
                sections.append(_section(f"neyman {group} {name}".replace("  ", " "), command))
    return "\n".join(sections)


def groups() -> Iterator[tuple[str, Any]]:
    """Yield the name of each group of commands, and the group: the commands without one first."""
    root: Any = typer.main.get_command(app)
    yield "", root
    for name, command in root.commands.items():
        if hasattr(command, "commands"):
            yield name, command


def example(command: Any) -> str:
    """Return the example of a command."""
    return (command.epilog or "").removeprefix("Example: ")


def _section(path: str, command: Any) -> str:
    text = inspect.cleandoc(command.help)
    rows = "\n".join(_row(each, command.callback) for each in command.params if not each.hidden)
    opening = f"### {path}\n\n{text}\n\n```sh\n{example(command)}\n```\n"
    head = "\n| Argument or option | Value | Default | Meaning |\n|---|---|---|---|\n"
    return opening + (f"{head}{rows}\n" if rows else "")


def _row(parameter: Any, callback: Any) -> str:
    options = [*parameter.opts, *parameter.secondary_opts]
    argument = not options[0].startswith("-")
    name = parameter.name.upper() if argument else "`, `".join(options)
    flag, kind = _kind(callback, parameter)
    default = parameter.default
    if parameter.required:
        default = "required"
    elif flag and not parameter.secondary_opts:
        default = "off"
    elif flag:
        default = f"`{options[not default]}`"
    elif default in (None, "", []):
        default = ""
    else:
        default = ", ".join(f"`{x}`" for x in (default if isinstance(default, list) else [default]))
    cells = (f"`{name}`", kind, default, _escaped(parameter.help or ""))
    return "| " + " | ".join(cells) + " |"


def _kind(callback: Any, parameter: Any) -> tuple[bool, str]:
    """Return True for an option without a value, and the words for the value."""
    annotation = typing.get_type_hints(callback)[parameter.name]
    if type(None) in typing.get_args(annotation):
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) is tuple:
        return False, parameter.metavar.lower()
    if typing.get_origin(annotation) is list:
        return False, f"{KINDS[typing.get_args(annotation)[0]]}, repeatable"
    return annotation is bool, KINDS[annotation]


def _escaped(text: str) -> str:
    """Return a help text as Markdown: options, files, and examples in a table cell."""
    text = re.sub(r"(?<![\w`])(--[a-z-]+)", r"`\1`", text)
    text = re.sub(r"('[^']*\([^']*'|[A-Z]+=[A-Z]+|postgresql://\.\.\.)", r"`\1`", text)
    return text.replace("|", "\\|")
