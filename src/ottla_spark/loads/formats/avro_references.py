"""Resolves references between Avro schemas: each definition is put where it is first used."""

from __future__ import annotations

import json

from ottla_spark.loads.errors import LoadError
from ottla_spark.loads.formats.avro_types import AvroSchema
from ottla_spark.loads.formats.schema_registry import RegisteredSchema, Registry

MOST_REFERENCES = 200


def whole_schema(registry: Registry, schema: RegisteredSchema) -> str:
    """Return the text of a schema with all schemas that it refers to."""
    if not schema.references:
        return schema.text
    definitions: dict[str, AvroSchema] = {}
    _fetch_references(registry, schema, definitions)
    return json.dumps(_inline(json.loads(schema.text), definitions, ""))


def _fetch_references(
    registry: Registry, schema: RegisteredSchema, definitions: dict[str, AvroSchema]
) -> None:
    for reference in schema.references:
        if reference.name in definitions:
            continue
        if len(definitions) >= MOST_REFERENCES:
            raise LoadError(f"a schema refers to more than {MOST_REFERENCES} others")
        found = registry.version(reference)
        definitions[reference.name] = json.loads(found.text)
        _fetch_references(registry, found, definitions)


def _inline(schema: AvroSchema, definitions: dict[str, AvroSchema], namespace: str) -> AvroSchema:
    if isinstance(schema, list):
        return [_inline(branch, definitions, namespace) for branch in schema]
    if isinstance(schema, str):
        for name in (schema, f"{namespace}.{schema}"):
            if name in definitions:
                return _inline(definitions.pop(name), definitions, namespace)
        return schema
    inner = schema.get("namespace", namespace)
    whole = dict(schema)
    for part in ("type", "items", "values"):
        if part in whole and not isinstance(whole.get("fields"), list):
            whole[part] = _inline(whole[part], definitions, inner)
    if isinstance(whole.get("fields"), list):
        whole["fields"] = [_inline(field, definitions, inner) for field in whole["fields"]]
    return whole
