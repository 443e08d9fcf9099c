"""Writes src/ottla/wire/messages/*.py and src/ottla/wire/api_table.py from kio's schemas.

kio has one dataclass per struct and version. Ottla has one class per struct for all versions,
with a version range for every field. This tool merges kio's classes into Ottla's. The output is
committed, so kio is needed only to run this tool and to test the codecs. The tool asserts all
its assumptions about the schemas: if a new kio breaks one, the tool fails.

Run: python tools/generate_wire.py [target directory]
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import get_args, get_origin

sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]  # kio would load it: 1.5 s

from kio.schema.index import api_key_map, schema_name_map  # noqa: E402

WIRE = Path(__file__).parent.parent / "src" / "ottla" / "wire"
LINE_LENGTH = 100
HEADERS = {"request_header", "response_header"}  # written by hand in wire/header.py
INTEGERS = {"int8", "int16", "uint16", "int32", "int64"}
AS_INTEGER = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
PYTHON_TYPES = dict.fromkeys(INTEGERS, "int") | {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "bytes",
    "uuid": "bytes",
}
IMPLICIT_DEFAULTS = dict.fromkeys(INTEGERS, "0") | {
    "bool": "False",
    "float64": "0.0",
    "string": '""',
    "bytes": 'b""',
    "records": 'b""',
    "uuid": "ZERO_UUID",
}
Versions = tuple[int, int]


@dataclasses.dataclass
class FieldSchema:
    """One field of a struct, over all its versions. `of` names the element type or struct."""

    name: str
    type: str
    of: str | None
    default: str
    tag: int | None
    versions: list[int]
    nullable: list[int]

    def shape(self) -> tuple[object, ...]:
        return (self.name, self.type, self.of, self.default, self.tag)

    @property
    def python_type(self) -> str:
        if self.type == "array":
            assert self.of is not None
            return f"list[{PYTHON_TYPES.get(self.of, self.of)}]"
        return self.of if self.of is not None else PYTHON_TYPES[self.type]


@dataclasses.dataclass
class Struct:
    """One class to write. Only whole messages use `api_key` and `flexible` (per version)."""

    name: str
    is_message: bool
    api_key: int | None
    fields: list[FieldSchema]
    flexible: dict[int, bool]


# ---- reading kio -------------------------------------------------------------------------


def split_optional(annotation: object) -> tuple[object, bool]:
    """Return the type without None, and whether None was allowed."""
    if get_origin(annotation) is not UnionType:
        return annotation, False
    rest = [argument for argument in get_args(annotation) if argument is not NoneType]
    assert len(rest) == 1, annotation
    return rest[0], True


def kind_of(field: dataclasses.Field[object]) -> tuple[str, str | None, bool]:
    """Return the type, the element or struct name, and nullability of a kio field."""
    inner, optional = split_optional(field.type)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner, _ = split_optional(get_args(inner)[0])
    if dataclasses.is_dataclass(inner):
        assert isinstance(inner, type)
        return ("array" if is_array else "struct"), inner.__name__, optional
    primitive = field.metadata["kafka_type"]
    primitive = AS_INTEGER.get(primitive, primitive)
    assert primitive in PYTHON_TYPES, primitive
    if is_array:
        return "array", primitive, optional
    # kio represents Kafka's zero UUID and "no timestamp" (-1) as None. On the wire they are values.
    return primitive, None, optional and primitive in {"string", "bytes", "records"}


def default_of(field: dataclasses.Field[object], type_: str, nullable: bool) -> str:
    """Return the default as source text. `()` for an array and `Struct()` are per instance."""
    if type_ == "records" and nullable:
        return "None"
    if field.default is dataclasses.MISSING:
        if type_ == "array":
            return "()"
        return "struct" if type_ == "struct" else IMPLICIT_DEFAULTS[type_]
    value = field.default
    if type_ == "uuid":
        assert value is None
        return "ZERO_UUID"
    if value is None:
        return "-1" if type_ == "int64" else "None"
    if type_ == "struct":
        assert value == type(value)(), f"{field.name}: not the default of its own class"
        return "struct"
    if isinstance(value, timedelta):
        return str(value // timedelta(milliseconds=1))
    if type_ in INTEGERS:
        assert isinstance(value, int)
        return str(int(value))
    assert value in (True, False, "", ()), value
    return '""' if value == "" else repr(value)


def fields_of(entity: type, version: int) -> Iterator[FieldSchema]:
    """Return the fields of one kio dataclass in its version."""
    for field in dataclasses.fields(entity):
        type_, of, nullable = kind_of(field)
        yield FieldSchema(
            name=field.name,
            type=type_,
            of=of,
            default=default_of(field, type_, nullable),
            tag=field.metadata.get("tag"),
            versions=[version],
            nullable=[version] if nullable else [],
        )


def merge(entities: dict[int, type]) -> list[FieldSchema]:
    """Return one list of fields for all versions, in an order that suits every version."""
    merged: list[FieldSchema] = []
    for version in sorted(entities, reverse=True):
        position = 0
        for field in fields_of(entities[version], version):
            known = next((f for f in merged if f.name == field.name), None)
            if known is None:
                merged.insert(position, field)
                position += 1
                continue
            assert known.shape() == field.shape(), f"{known} changes its type at v{version}"
            known.versions.insert(0, version)
            known.nullable[:0] = field.nullable
            position = merged.index(known) + 1
    check_order(entities, [field.name for field in merged])
    return merged


def check_order(entities: dict[int, type], names: list[str]) -> None:
    for entity in entities.values():
        own = [field.name for field in dataclasses.fields(entity)]
        assert own == [name for name in names if name in own], f"{entity} has another order"


def load(module_name: str, role: str) -> tuple[str, dict[str, dict[int, type]]]:
    """Return the message name and kio's classes by struct name and version, for one side."""
    message = ""
    structs: dict[str, dict[int, type]] = {}
    for version, entries in sorted(schema_name_map[module_name].items()):
        path = next((p for kind, p in entries.items() if kind.name == role), None)
        assert path is not None, f"{module_name} v{version} has no {role}"
        where, message = path.split(":")
        for entity in vars(importlib.import_module(where)).values():
            if dataclasses.is_dataclass(entity) and entity.__module__ == where:
                assert isinstance(entity, type)
                structs.setdefault(entity.__name__, {})[version] = entity
    return message, structs


def structs_of(module_name: str, role: str) -> list[Struct]:
    """Return the structs of one message in order of use, the message last."""
    message, entities = load(module_name, role)
    structs = {
        name: Struct(
            name=name,
            is_message=name == message,
            api_key=getattr(versions[max(versions)], "__api_key__", None),
            fields=merge(versions),
            flexible={v: vars(entity)["__flexible__"] for v, entity in sorted(versions.items())},
        )
        for name, versions in entities.items()
    }
    ordered: list[Struct] = []

    def visit(struct: Struct) -> None:
        for field in struct.fields:
            if field.of in structs and structs[field.of] not in ordered:
                visit(structs[field.of])
        ordered.append(struct)

    visit(structs[message])
    assert len(ordered) == len(structs), f"{module_name}: unused structs"
    return ordered


def rename_clashes(requests: list[Struct], responses: list[Struct]) -> None:
    """Rename structs that the request and the response of an API both have."""
    common = {struct.name for struct in requests} & {struct.name for struct in responses}
    for side, structs in (("Request", requests), ("Response", responses)):
        for struct in structs:
            struct.name = side + struct.name if struct.name in common else struct.name
            for field in struct.fields:
                field.of = side + field.of if field.of in common else field.of
    names = [struct.name for struct in requests + responses]
    assert len(names) == len(set(names)), names


# ---- writing Python ----------------------------------------------------------------------


def version_range(versions: list[int]) -> Versions:
    assert versions == list(range(versions[0], versions[-1] + 1)), versions
    return versions[0], versions[-1]


def first_flexible(struct: Struct) -> int | None:
    """Return the first version from which all versions are flexible."""
    flexible = [version for version, is_flexible in struct.flexible.items() if is_flexible]
    assert flexible == list(struct.flexible)[len(struct.flexible) - len(flexible) :]
    return min(flexible, default=None)


def listing(opening: str, items: list[str], closing: str, indent: str, *, open_out: bool) -> str:
    """Return the items on one line if they fit (and may), else one item per line."""
    one_line = f"{indent}{opening}{', '.join(items)}{closing}"
    if not open_out and len(one_line) <= LINE_LENGTH:
        return one_line + "\n"
    lines = "".join(f"{indent}    {item},\n" for item in items)
    return f"{indent}{opening}\n{lines}{indent}{closing.removeprefix(',')}\n"


def tuple_source(name: str, items: list[str]) -> str:
    closing = ",)" if len(items) == 1 else ")"
    return listing(f"{name} = (", items, closing, "    ", open_out=False)


def field_source(field: FieldSchema) -> str:
    parts = [f'"{field.name}"', f'"{field.type}"', str(version_range(field.versions))]
    if field.of is not None:
        parts.append(f'of="{field.of}"' if field.of in PYTHON_TYPES else f"of={field.of}")
    if field.nullable:
        parts.append(f"nullable={version_range(field.nullable)}")
    if field.tag is not None:
        parts.append(f"tag={field.tag}")
    return listing("Field(", parts, ")", " " * 8, open_out=False).strip()


def parameter_source(field: FieldSchema) -> str:
    """Return a constructor parameter. None means a new struct if the struct is not nullable."""
    annotation = field.python_type.replace("list[", "Items[")
    default = "None" if field.default == "struct" else field.default
    if field.nullable or field.default == "struct":
        annotation += " | None"
    return f"{field.name}: {annotation} = {default}"


def assignment_source(field: FieldSchema) -> str:
    name = field.name
    if field.default == "struct":
        choice = [f"{field.python_type}()", f"if {name} is None", f"else {name}"]
    elif field.type == "array" and field.nullable:
        choice = ["None", f"if {name} is None", f"else as_list({name})"]
    else:
        choice = [f"as_list({name})" if field.type == "array" else name]
    line = f"        self.{name} = {' '.join(choice)}\n"
    if len(line) <= LINE_LENGTH + 1:
        return line
    inner = " " * 12
    folded = inner + " ".join(choice)
    if len(folded) > LINE_LENGTH:
        folded = "\n".join(inner + part for part in choice)
    return f"        self.{name} = (\n{folded}\n        )\n"


def message_attributes(struct: Struct) -> str:
    lowest, highest = version_range(list(struct.flexible))
    lines = [] if struct.api_key is None else [f"API_KEY = {int(struct.api_key)}"]
    lines += [f"MIN_VERSION = {lowest}", f"MAX_VERSION = {highest}"]
    lines += [f"FIRST_FLEXIBLE_VERSION = {first_flexible(struct)}"]
    return "".join(f"    {line}\n" for line in lines)


def class_source(struct: Struct) -> str:
    names = sorted(f'"{field.name}"' for field in struct.fields)
    text = f"\n\nclass {struct.name}(Message):\n" + tuple_source("__slots__", names)
    if struct.is_message:
        text += message_attributes(struct)
    if not struct.fields:
        return text
    text += tuple_source("FIELDS", [field_source(f) for f in struct.fields])
    parameters = ["self", "*", *(parameter_source(f) for f in struct.fields)]
    text += "\n" + listing("def __init__(", parameters, ") -> None:", "    ", open_out=True)
    return text + "".join(assignment_source(f) for f in struct.fields)


def module_source(title: str, structs: list[Struct]) -> str:
    lowest, highest = version_range(list(structs[-1].flexible))
    versions = f"version {lowest}" if lowest == highest else f"versions {lowest}-{highest}"
    text = f'"""{title}, {versions}. Generated by tools/generate_wire.py."""\n\n'
    text += "from __future__ import annotations\n\n"
    if any(field.default == "ZERO_UUID" for struct in structs for field in struct.fields):
        text += "from ottla.model.ids import ZERO_UUID\n"
    classes = "".join(class_source(struct) for struct in structs)
    used = [n for n in ("Field", "Items", "Message", "as_list") if re.search(rf"\b{n}\b", classes)]
    return text + f"from ottla.wire.message import {', '.join(used)}\n" + classes


def camel_case(module_name: str) -> str:
    return "".join(word.capitalize() for word in module_name.split("_"))


def api_module(key: int, module_name: str) -> tuple[str, str]:
    """Return the source of the module and its row in the table of APIs."""
    requests = structs_of(module_name, "request")
    responses = structs_of(module_name, "response")
    title = camel_case(module_name)
    request, response = requests[-1], responses[-1]
    assert (request.name, response.name) == (title + "Request", title + "Response")
    assert request.api_key == response.api_key == key
    assert request.flexible == response.flexible
    rename_clashes(requests, responses)
    lowest, highest = version_range(list(request.flexible))
    row = f'    {key}: ApiInfo("{title}", {lowest}, {highest}, {first_flexible(request)}),\n'
    return module_source(f"{title} (API key {key})", requests + responses), row


def table_source(rows: list[str]) -> str:
    text = '"""Every API of Kafka\'s protocol, by key. Generated by tools/generate_wire.py."""\n\n'
    text += "from __future__ import annotations\n\nfrom enum import IntEnum\n"
    text += "from typing import NamedTuple\n\n\nclass ApiKey(IntEnum):\n"
    text += '    """The API key, the first field of a request."""\n\n'
    text += "".join(f"    {name.upper()} = {key}\n" for key, name in sorted(api_key_map.items()))
    text += "\n\nclass ApiInfo(NamedTuple):\n"
    text += '    """An API: its name, its versions, and its first flexible version, if any."""\n\n'
    text += "    name: str\n    min_version: int\n    max_version: int\n"
    text += "    first_flexible: int | None\n\n\n"
    return text + "API_INFO: dict[int, ApiInfo] = {\n" + "".join(rows) + "}\n"


def generate() -> dict[str, str]:
    """Return every generated file: its path below wire/ and its content."""
    package = '"""The messages of Kafka\'s protocol, one module per API."""\n'
    files = {"messages/__init__.py": package}
    rows = []
    for key, module_name in sorted(api_key_map.items()):
        files[f"messages/{module_name}.py"], row = api_module(key, module_name)
        rows.append(row)
    for module_name in sorted(set(schema_name_map) - set(api_key_map.values()) - HEADERS):
        title = camel_case(module_name)
        files[f"messages/{module_name}.py"] = module_source(title, structs_of(module_name, "data"))
    files["api_table.py"] = table_source(rows)
    return files


def main(target: Path) -> None:
    """Write changed files, and remove messages that no longer exist."""
    files = generate()
    for stale in (target / "messages").glob("*.py"):
        if f"messages/{stale.name}" not in files:
            stale.unlink()
    for path, content in files.items():
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text() != content:
            file.write_text(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else WIRE)
