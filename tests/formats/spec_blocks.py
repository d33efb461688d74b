"""The parts of formats/SPEC.md that follow from the code.

`python -m tests.formats.spec_blocks` writes them into SPEC.md; test_spec.py holds it against them.
"""

import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
import struct
import tempfile
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tcbuild import formats
from tcbuild.formats import errors, fact, safetensors_header, strict_json, variant_check, version
from tcbuild.formats.container import HEADER, Artifact
from tcbuild.formats.manifest import Manifest
from tcbuild.formats.record import TAG, encode
from tcbuild.formats.section import PAGE
from tcbuild.formats.signature import Node
from tests.formats import samples

SPEC: Final = Path(__file__).parent.parent.parent / "formats" / "SPEC.md"
COMMAND: Final = "python -m tests.formats.spec_blocks"

# name, format of `struct`, type, meaning
FIELDS: Final = (
    ("magic", "8s", "bytes", "`89 54 43 42 0d 0a 1a 0a`: spoilt by a copy that changes line ends"),
    ("version", "I", "u32", "of the format"),
    ("reserved", "I", "u32", "MUST be 0"),
    ("manifest length", "Q", "u64", "in bytes"),
    ("file length", "Q", "u64", "of the whole file, in bytes"),
    ("manifest digest", "32s", "bytes", "SHA-256 of the manifest"),
)

LIMITS: Final = {
    "container.MAX_MANIFEST": "bytes of the manifest",
    "expression.MAX_DEPTH": "operators inside each other in an expression",
    "expression.MAX_LENGTH": "characters of an expression",
    "layout.MAX_RANK": "axes of a tensor",
    "manifest.MAX_SECTIONS": "sections",
    "manifest.MAX_VARIANTS": "variants",
    "manifest.MAX_WEIGHTS": "weights",
    "packing.MAX_BLOCK": "outputs of a weight in blocks, in a block",
    "record.MAX_DEPTH": "records inside each other",
    "safetensors_header.MAX_HEADER": "bytes of the safetensors header",
    "section.MAX_UNPACKED": "bytes of a zstd section, once decoded",
    "strict_json.MAX_INT": "an integer, and the product of the sizes of a weight",
    "text.MAX_LABEL": "characters of a name of a model, a section, a variant",
    "variant_check.MAX_GUARDS": "guards of a variant",
}


def blocks() -> dict[str, str]:
    """Return each generated part by its name."""
    return {
        "header": _header(),
        "limits": _limits(),
        "errors": _errors(),
        "version": _version(),
        "records": "\n\n".join(map(_record, records())),
        "facts": _facts(),
        "required": _required(),
        "dtypes": ", ".join(
            f"`{code}` {name}" for code, (name, _) in safetensors_header.DTYPES.items()
        ),
        "manifest": f"```json\n{_folded(strict_json.read(_tiny()[0].to_bytes()))}\n```",
        "dump": f"```\n{dump()}\n```",
    }


def filled(text: str) -> str:
    """Return SPEC.md's text with its generated parts as they should be."""
    for name, block in blocks().items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        assert text.count(begin) == text.count(end) == 1, name
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{block}\n{end}{rest.split(end)[1]}"
    return text


def limits_in_code() -> dict[str, int]:
    """Return every constant of the formats that is a limit, by module and name."""
    found = {}
    for module in pkgutil.iter_modules(formats.__path__):
        names = vars(importlib.import_module(f"tcbuild.formats.{module.name}"))
        source = (SPEC.parent / f"{module.name}.py").read_text(encoding="utf-8")
        for name in re.findall(r"^(MAX_\w+)\b", source, re.MULTILINE):
            found[f"{module.name}.{name}"] = names[name]
    return found


def records() -> list[type[Any]]:
    """Return every record that a manifest may hold, the manifest first."""
    found: list[type[Any]] = [Manifest]
    for kind in found:
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            found += [
                inner
                for inner in _classes(hints[field.name])
                if dataclasses.is_dataclass(inner) and inner not in found
            ]
    return found


def meanings(kind: type[Any]) -> dict[str, str]:
    """Return what a record's docstring says of each attribute."""
    found: dict[str, str] = {}
    lines = inspect.getdoc(kind).splitlines()  # type: ignore[union-attr]
    names: list[str] = []
    for line in lines[lines.index("Attributes:") + 1 :] if "Attributes:" in lines else []:
        match = re.match(r"    (\w+(?:, \w+)*): (.*)", line)
        if match:
            names = match[1].split(", ")
            found.update(dict.fromkeys(names, match[2]))
        elif line.strip():
            found.update({name: f"{found[name]} {line.strip()}" for name in names})
        else:
            break
    return found


def dump() -> str:
    """Return the bytes of the tiny artifact, with what each piece of them is."""
    manifest, file = _tiny()
    end = HEADER.size + len(manifest.to_bytes())
    rows: list[str] = []
    offset = 0
    values = HEADER.unpack_from(file)
    for (name, code, _, _), value in zip(FIELDS, values, strict=True):
        size = struct.calcsize(f"<{code}")
        note = f"{name}: {value}" if isinstance(value, int) else name
        rows += _rows(file, offset, offset + size, note)
        offset += size
    rows += _rows(file, offset, offset + 32, "manifest, as above")
    rows += ["..."]
    rows += _rows(file, end - 16, end, "end of the manifest")
    rows += [f"{end:08x}  zeros up to {PAGE:#x}, where the data starts"]
    data = PAGE
    offset = data
    for section in sorted(manifest.sections, key=lambda section: section.offset):
        start = data + section.offset
        if start > offset:
            rows += [f"{offset:08x}  zeros up to {start:#x}, a multiple of 64"]
        offset = start + section.length
        if section.encoding == "raw":
            length = int.from_bytes(file[start : start + 8], "little")
            body = start + 8
            tensors = body + length
            rows += _rows(file, start, body, f"section {section.name}: {length} bytes of header")
            rows += _rows(file, body, tensors, "JSON, then spaces up to a multiple of 64")
            rows += _rows(file, tensors, offset, "float32 scale: 1.0, -0.5")
        else:
            rows += _rows(file, start, offset, f"section {section.name}: one zstd frame")
    assert offset == len(file)
    rows += [f"{offset:08x}  end of the file"]
    return "\n".join(rows)


def _tiny() -> tuple[Manifest, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = samples.write_tiny(Path(folder) / "tiny.tcb")
        with Artifact(path) as artifact:
            return artifact.manifest, path.read_bytes()


def _rows(file: bytes, start: int, end: int, note: str) -> Iterator[str]:
    for at in range(start, end, 16):
        piece = file[at : min(at + 16, end)]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        yield f"{at:08x}  {piece.hex(' '):47}  {text:16}  {note}".rstrip()
        note = ""


def _header() -> str:
    rows = ["| offset | size | type | field | meaning |", "|---|---|---|---|---|"]
    offset = 0
    for name, code, kind, meaning in FIELDS:
        size = struct.calcsize(f"<{code}")
        rows.append(f"| {offset} | {size} | {kind} | {name} | {meaning} |")
        offset += size
    rows.append(f"| {offset} | manifest length | UTF-8 | manifest | JSON, see below |")
    return "\n".join(rows)


def _limits() -> str:
    rows = ["| at most | | name in the code |", "|---|---|---|"]
    found = limits_in_code()
    return "\n".join(
        rows + [f"| {found[name]:,} | {what} | `{name}` |" for name, what in LIMITS.items()]
    )


def _errors() -> str:
    rows = ["| error | says |", "|---|---|"]
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, errors.FormatError):
            rows.append(f"| `{name}` | {kind.problem} |")
    return "\n".join(rows)


def _version() -> str:
    """Return what version.py says, its paragraphs each on one line."""
    text = inspect.getdoc(version) or ""
    return re.sub(r"\n  +", " ", text.split("\n\n", 1)[1])


def _record(kind: type[Any]) -> str:
    hints = typing.get_type_hints(kind)
    said = meanings(kind)
    tag = getattr(kind, TAG, None)
    title = f"**{kind.__name__}**"
    rows = [f"{title}: `kind` is `{tag!r}`.".replace("'", '"') if tag else title, ""]
    rows += ["| field | type | required | meaning |", "|---|---|---|---|"]
    for field in dataclasses.fields(kind):
        needed = _default(field)
        meaning = re.sub(r"\bNone\b", "null", said[field.name])
        cells = (f"`{field.name}`", _type(hints[field.name]), needed, meaning)
        rows.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(rows)


def _default(field: "dataclasses.Field[Any]") -> str:
    if field.default_factory is not dataclasses.MISSING:
        default: object = field.default_factory()
    elif field.default is not dataclasses.MISSING:
        default = field.default
    else:
        return "yes"
    value = encode(default)
    return f"no: `{json.dumps(value)}`"


_TYPES: Final[dict[Any, str]] = {
    **{str: "string", int: "integer", float: "number", bool: "boolean"},
    **{type(None): "null", Any: "see the fact"},
}


def _type(hint: Any) -> str:
    if hint in _TYPES:
        return _TYPES[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return f"list of {_type(args[0])}"
    if origin is dict:
        return f"object of {_type(args[1])}"
    if origin in (typing.Union, types.UnionType):
        nodes = set(typing.get_args(Node))
        rest = [arg for arg in args if arg not in nodes]
        names = ["Node"] if nodes <= set(args) else [_type(arg) for arg in args if arg in nodes]
        return " or ".join(names + list(map(_type, rest)))
    name: str = hint.__name__
    return name


def _classes(hint: Any) -> list[type[Any]]:
    args = typing.get_args(hint)
    return [kind for arg in args for kind in _classes(arg)] if args else [hint]


def _facts() -> str:
    rows = ["| fact | of | `expected` | observed |", "|---|---|---|---|"]
    for name, item in fact.FACTS.items():
        rows.append(f"| `{name}` | {item.subject} | {item.form.text} | {item.meaning} |")
    return "\n".join(rows)


def _required() -> str:
    rows = ["| form | of each tensor | of each Python value | of `@host` |", "|---|---|---|---|"]
    for form, needed in variant_check.REQUIRED.items():
        cells = (
            ", ".join(f"`{name}`" for name in needed.get(subject, ())) or "-"
            for subject in (fact.TENSOR, fact.VALUE, fact.HOST)
        )
        rows.append(f"| `{form}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def _folded(value: Any, indent: int = 0, width: int = 100) -> str:
    """Return JSON with everything on one line that fits on one."""
    line = json.dumps(value)
    if indent + len(line) <= width or not isinstance(value, dict | list):
        return line
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        items = [f"{json.dumps(k)}: {_folded(v, indent + 1, width)}" for k, v in value.items()]
    else:
        items = [_folded(item, indent + 1, width) for item in value]
    left, right = "{}" if isinstance(value, dict) else "[]"
    return f"{left}\n{inner}" + f",\n{inner}".join(items) + f"\n{' ' * indent}{right}"


if __name__ == "__main__":
    SPEC.write_text(filled(SPEC.read_text(encoding="utf-8")), encoding="utf-8")
