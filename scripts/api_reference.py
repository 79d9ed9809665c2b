"""Write docs/api.md, the reference of every door, from the source; with --check, say what of it is out of date.

The source is read and not imported: the page is the same on every machine and Python, and made in a second.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import final

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "api.md"
# What a user meets first comes first; then the rooms, upwards from the data.
ROOMS = (
    "masil", "masil.learner", "masil.data", "masil.protocol", "masil.backbones", "masil.collapse", "masil.concepts",
    "masil.training", "masil.methods", "masil.benchmark", "masil.report", "masil.hardware", "masil.errors",
)  # fmt: skip
IN_FULL = "Masil"  # each of its methods has a heading
WIDTH = 100  # of a signature on one line
SHORT = 12  # lines of a constant that is shown whole
INTRO = """\
<!-- Made by `python scripts/api_reference.py`; change docstrings, not this file. -->
# API reference

Everything that a door of masil offers, room by room: what is imported from a room is listed here, what is not is the
room's own. [The tutorial](tutorial.md) shows how it plays together. A method that a class shares with its base is
described there. Axes have fixed letters: n samples, d features, v concepts, k classes, c h w pixels.
"""
SECTIONS = ("Args", "Attributes", "Returns")


@final
@dataclass(frozen=True)
class Module:
    """A file of the package: its lines, its tree, and where the names it imports from masil live."""

    name: str
    path: Path
    lines: list[str]
    tree: ast.Module
    imports: dict[str, str]

    def find(self, name: str) -> ast.stmt | None:
        """Give the statement that defines `name`."""
        return next((statement for statement in self.tree.body if name in _names(statement)), None)

    def source(self, node: ast.expr) -> str:
        """Give the text of an expression, as it stands; `ast` counts columns in bytes."""
        lines = [line.encode() for line in self.lines[node.lineno - 1 : node.end_lineno]]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"\n".join(lines).decode()


@final
@dataclass(frozen=True)
class Found:
    """A name of a door, and where it is defined."""

    name: str
    module: Module
    node: ast.stmt


@cache
def module(name: str) -> Module:
    """Read a module of masil."""
    room = ROOT / "src" / Path(*name.split("."))
    path = room / "__init__.py" if room.is_dir() else room.with_suffix(".py")
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    imports = {
        alias.asname or alias.name: node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "masil"
        for alias in node.names
    }
    return Module(name, path, text.splitlines(), tree=tree, imports=imports)


def resolve(name: str, start: str) -> Found | None:
    """Follow imports from module `start` to where `name` is defined; None where that is outside masil."""
    here = module(start)
    node = here.find(name)
    if node is not None:
        return Found(name, here, node)
    return resolve(name, here.imports[name]) if name in here.imports else None


def offered(room: str) -> list[str]:
    """Give the names of a room's door: those in `__all__`; without one all that a folder imports, or a file defines."""
    here = module(room)
    statement = here.find("__all__")
    if isinstance(statement, ast.Assign):
        return [name for name in ast.literal_eval(statement.value) if not name.startswith("__")]
    if here.path.name != "__init__.py":
        defined = [part.name for part in here.tree.body if isinstance(part, ast.ClassDef | ast.FunctionDef)]
        return sorted(name for name in defined if not name.startswith("_"))
    return sorted(
        {
            alias.name  # an old name that an `as` gives is left out
            for part in module(room).tree.body
            if isinstance(part, ast.ImportFrom) and (part.module or "").startswith("masil")
            for alias in part.names
        }
    )


def door(room: str) -> list[Found]:
    """Give what a room offers: constants, classes, functions, each in the order of the alphabet."""
    names = offered(room)
    found = [definition for name in names if (definition := resolve(name, room)) is not None]
    assert len(found) == len(names), f"{room} offers names that are not defined in masil: {names}"

    def order(definition: Found) -> tuple[bool, bool, str]:
        node = definition.node
        return isinstance(node, ast.FunctionDef), isinstance(node, ast.ClassDef), definition.name

    return sorted(found, key=order)


def _names(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    parts = targets[0].elts if isinstance(targets[0], ast.Tuple) else targets
    return [part.id for part in parts if isinstance(part, ast.Name)]


def _value(found: Found) -> ast.expr | None:
    """Give what a constant is set to, alone or as one of several."""
    value = getattr(found.node, "value", None)
    names = _names(found.node)
    return value.elts[names.index(found.name)] if isinstance(value, ast.Tuple) and len(names) > 1 else value


# Signatures


def signature(of: Module, function: ast.FunctionDef, name: str, width: int | None = WIDTH) -> str:
    """Give a call's parameters with types and defaults as in the source, without `self`; on one line if they fit."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    shown = [_parameter(of, *pair) for pair in zip(plain, defaults, strict=True)]
    if plain and plain[0].arg in ("self", "cls"):
        del shown[0]
    if arguments.vararg or arguments.kwonlyargs:
        shown.append("*" + (_parameter(of, arguments.vararg) if arguments.vararg else ""))
    shown += [_parameter(of, *pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        shown.append("**" + _parameter(of, arguments.kwarg))
    result = f" -> {_type(of, function.returns)}" if function.returns and function.name != "__init__" else ""
    line = f"{name}({', '.join(shown)}){result}"
    if width is None or len(line) <= width:
        return line
    return "\n".join([f"{name}(", *(f"    {parameter}," for parameter in shown), f"){result}"])


def _parameter(of: Module, argument: ast.arg, default: ast.expr | None = None) -> str:
    text = argument.arg + (f": {_type(of, argument.annotation)}" if argument.annotation else "")
    if default is None:
        return text
    if isinstance(default, ast.Name) and (named := resolve(default.id, of.name)) is not None:
        value = _value(named)
        if isinstance(value, ast.Constant):  # a constant of the module says less than its value
            return f"{text} = {named.module.source(value)}"
    return f"{text} = {_one_line(of.source(default))}"


def _type(of: Module, annotation: ast.expr) -> str:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value  # written in quotes, because the name comes later
    return _one_line(of.source(annotation))


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def decorated(node: ast.FunctionDef | ast.ClassDef) -> set[str]:
    """Give the names of a definition's decorators."""
    names = (mark.func if isinstance(mark, ast.Call) else mark for mark in node.decorator_list)
    return {name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "") for name in names}


# Prose


def prose(node: ast.ClassDef | ast.FunctionDef) -> Iterator[str]:
    """Give a docstring as Markdown: paragraphs as they are, sections as lists."""
    for paragraph in re.split(r"\n\n+", ast.get_docstring(node) or ""):
        head, _, body = paragraph.partition("\n")
        if head.rstrip(":") in SECTIONS and head.endswith(":"):
            items = re.split(r"\n(?=    \S)", body)
            yield from ([] if head.startswith("Args") else [f"{head}", ""])
            for item in items:
                name, colon, text = _flat(item).partition(": ")
                yield f"- `{name}`: {text}" if colon and " " not in name else f"- {_flat(item)}"
            yield ""
        else:
            yield from (_flat(paragraph), "")


def _flat(text: str) -> str:
    """Put a paragraph on one line; what looks like HTML outside of code is shown as it is written."""
    parts = re.split(r"(`[^`]*`)", re.sub(r"\s+", " ", text.strip()))
    return "".join(part if part.startswith("`") else part.replace("<", "\\<") for part in parts)


def code(text: str) -> list[str]:
    """Give a block of Python."""
    return ["```python", text, "```", ""]


# Classes, functions, constants


def bases(found: Found) -> list[Found]:
    """Give the classes of masil that a class builds on, nearest first."""
    assert isinstance(found.node, ast.ClassDef)
    parents = [resolve(base.id, found.module.name) for base in found.node.bases if isinstance(base, ast.Name)]
    near = [parent for parent in parents if parent is not None and isinstance(parent.node, ast.ClassDef)]
    return [further for parent in near for further in (parent, *bases(parent))]


def methods(found: Found) -> dict[str, ast.FunctionDef]:
    """Give the public methods that a class itself defines."""
    assert isinstance(found.node, ast.ClassDef)
    return {
        node.name: node
        for node in found.node.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


def constructor(found: Found) -> str:
    """Give a class's first lines: its fields where it is a record, else how it is called."""
    node = found.node
    assert isinstance(node, ast.ClassDef)
    parents = ", ".join(found.module.source(base) for base in node.bases)
    head = f"class {node.name}" + (f"({parents})" if parents else "")
    lines = found.module.lines
    fields = [
        "\n".join(lines[part.lineno - 1 : part.end_lineno])
        for part in node.body
        if isinstance(part, ast.AnnAssign | ast.Assign) and not any(name.startswith("_") for name in _names(part))
    ]
    if "dataclass" in decorated(node):
        return "\n".join([f"{head}:", *fields])
    called = next((call for owner in (found, *bases(found)) if (call := _init(owner, node.name))), "")
    abstract = any(found.module.source(base) == "ABC" for base in node.bases)
    described = "\n".join([f"{head}:", *fields]) if fields else head if parents or not called else ""
    return "\n\n".join(part for part in ("" if abstract else called, described) if part)


def _init(found: Found, name: str) -> str:
    """Give the call that `__init__` of a class answers, under another class's name; "" where it has none."""
    assert isinstance(found.node, ast.ClassDef)
    calls = (part for part in found.node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__")
    return next((signature(found.module, call, name) for call in calls), "")


def class_page(found: Found, documented: set[str]) -> Iterator[str]:
    """Describe a class: how it is made, what it is, what it does."""
    yield from code(constructor(found))
    yield from prose(found.node)
    above = bases(found)
    told = {name for parent in above if parent.name in documented for name in methods(parent)}
    shown: dict[str, tuple[Module, ast.FunctionDef]] = {}
    for owner in (found, *(parent for parent in above if parent.name not in documented)):
        for name, node in methods(owner).items():
            if name not in told:
                shown.setdefault(name, (owner.module, node))
    for name, (of, node) in shown.items():
        if found.name == IN_FULL:
            yield from (f"#### {found.name}.{name}", "", *code(_call(of, node, name)), *prose(node))
        else:
            first, *further = [line for line in prose(node) if line] or [""]
            yield f"- `{_call(of, node, name, None)}`" + (f": {first}" if first else "")
            yield from (f"  {line}" if line.startswith("- ") else f"\n  {line}" for line in further)
    if shown and found.name != IN_FULL:
        yield ""


def _call(of: Module, node: ast.FunctionDef, name: str, width: int | None = WIDTH) -> str:
    kinds = decorated(node)
    if kinds & {"property", "cached_property"}:
        return f"{name}: {_type(of, node.returns)}" if node.returns else name
    return ("classmethod " if "classmethod" in kinds else "") + signature(of, node, name, width)


def constant_page(found: Found) -> Iterator[str]:
    """Show a constant whole where it is short, else its type and the names in it."""
    of, node = found.module, found.node
    assert isinstance(node, ast.AnnAssign | ast.Assign)
    lines = of.lines[node.lineno - 1 : node.end_lineno]
    if len(lines) <= SHORT or not isinstance(node.value, ast.Dict):
        yield from code("\n".join(lines))
        return
    kind = f": {of.source(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
    yield from code(f"{found.name}{kind}")
    yield "Its names: " + ", ".join(f"`{ast.literal_eval(key)}`" for key in node.value.keys if key) + "."
    yield ""


def entry(found: Found, documented: set[str]) -> Iterator[str]:
    """Describe one name."""
    path = found.module.path.relative_to(ROOT).as_posix()
    yield f"### [{found.name}](../{path})"
    yield ""
    if isinstance(found.node, ast.ClassDef):
        yield from class_page(found, documented)
    elif isinstance(found.node, ast.FunctionDef):
        yield from code(signature(found.module, found.node, found.name))
        yield from prose(found.node)
    else:
        yield from constant_page(found)


def reference() -> str:
    """Give the whole page."""
    doors = {room: door(room) for room in ROOMS}
    documented = {found.name for names in doors.values() for found in names}
    lines = [INTRO]
    for room, names in doors.items():
        lines.append(f"- [`{room}`](#{room.replace('.', '')}): " + ", ".join(f"`{found.name}`" for found in names))
    lines.append("")
    told: set[tuple[str, str]] = set()
    for room, names in doors.items():
        lines += [f"## {room}", "", _flat(ast.get_docstring(module(room).tree) or ""), ""]
        again = [found.name for found in names if (found.module.name, found.name) in told]
        if again:
            lines += [f"{' and '.join(f'`{name}`' for name in again)}: see above.", ""]
        for found in names:
            if found.name not in again:
                lines += entry(found, documented)
                told.add((found.module.name, found.name))
    return "\n".join(lines).rstrip() + "\n"


def differences(page: str, current: str) -> list[str]:
    """Name what of a page is not as the source says."""
    old, new = (_parts(text) for text in (page, current))
    return [
        *(f"{name} is missing" for name in new if name not in old),
        *(f"{name} is no more" for name in old if name not in new),
        *(f"{name} has changed" for name in new if name in old and old[name] != new[name]),
    ] or (["the order has changed"] if page != current else [])


def _parts(page: str) -> dict[str, str]:
    """Split a page at its headings, each called by its room and name."""
    parts, room, name = {"the beginning": ""}, "", "the beginning"
    for line in page.splitlines():
        if line.startswith("## "):
            room = name = line[3:]
        elif line.startswith(("### ", "#### ")):
            title = re.sub(r"[#\[]|\]\(.*", "", line).strip()
            name = f"{room}.{title}"
        parts[name] = parts.get(name, "") + line + "\n"
    return parts


def main() -> None:
    """Write the page, or check it: exit code 1 and a list where it is out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if the page is out of date")
    check = parser.parse_args().check
    current = reference()
    if not check:
        PAGE.write_text(current, encoding="utf-8")
        return
    if wrong := differences(PAGE.read_text(encoding="utf-8") if PAGE.exists() else "", current):
        shown = "\n".join(f"  {name}" for name in wrong)
        sys.stderr.write(f"{PAGE} is out of date:\n{shown}\nWrite it again with: python scripts/api_reference.py\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
