"""The result of a load as a table or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.cli.output import Column, JsonValue, print_json, print_table

_KIB = 1024.0
_LEAST_WHOLE_RATE = 10


def print_result(told: Mapping[str, str | int | float | dict[str, str]], as_json: bool) -> None:
    """Print the result of a load. `told` has the names of its JSON form."""
    if as_json:
        print_json(_document(told))
        return
    print_table([Column("load"), Column("")], [[name, text] for name, text in _rows(told) if text])


def print_results(
    told: Iterable[Mapping[str, str | int | float | dict[str, str]]], as_json: bool
) -> None:
    """Print the results of several loads: tables, or one JSON document with a list."""
    if not as_json:
        for each in told:
            print_result(each, False)
        return
    print_json({"loads": [_document(each) for each in told]})


def _document(told: Mapping[str, str | int | float | dict[str, str]]) -> dict[str, JsonValue]:
    document: dict[str, JsonValue] = {}
    for name, value in told.items():
        document[name] = {**value} if isinstance(value, dict) else value
    return document


def _rows(told: Mapping[str, str | int | float | dict[str, str]]) -> list[tuple[str, str]]:
    return [
        ("topic", str(told["topic"])),
        ("table", str(told["table"])),
        ("records", _count(told["records"])),
        ("rows added", _count(told["rows"])),
        ("dead letters", _dead_letters(told)),
        ("new fields", _fields(told["new_fields"])),
        ("fields added", _fields(told["added_fields"])),
        ("lag", _count(told["lag"])),
        ("batches", _count(told["batches"])),
        ("files", f"{_count(told['files'])} ({_size(told['bytes'])})"),
        ("files compacted", _count(told["compacted_files"]) if told["compacted_files"] else ""),
        ("seconds", f"{told['seconds']:.1f}" if isinstance(told["seconds"], float) else ""),
        ("records/s", _rate(told["records_per_second"]) if told["batches"] else ""),
        ("group", str(told["group"])),
    ]


def _count(value: object) -> str:
    assert isinstance(value, int | float)
    return f"{value:,.0f}"


def _rate(value: object) -> str:
    assert isinstance(value, int | float)
    return f"{value:,.0f}" if value >= _LEAST_WHOLE_RATE else f"{value:.1f}"


def _size(value: object) -> str:
    assert isinstance(value, int)
    for unit, size in (("GiB", _KIB**3), ("MiB", _KIB**2), ("KiB", _KIB)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value} B"


def _dead_letters(told: Mapping[str, object]) -> str:
    return (
        f"{_count(told['dead_letters'])} in {told['dead_letters_to']}"
        if told["dead_letters"]
        else "0"
    )


def _fields(value: object) -> str:
    assert isinstance(value, dict)
    return ", ".join(f"{name} {kind}".rstrip() for name, kind in value.items())
