"""A schema with its id: what the driver finds and tasks write with."""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_sink.installation import SameVersion


@dataclass(frozen=True, slots=True)
class ResolvedSchema(SameVersion):
    """A schema with its id. It holds all that a task needs to write, and no secret.

    Attributes:
        part: key or value.
        format: the format's name, such as avro.
        subject: the subject in the registry; empty for a schema that was named by its id alone.
        schema_id: the id that goes before the data.
        text: the schema, as its format prepares it for tasks.
        named: texts of the schemas that it refers to, by the name of the reference.
        guid: the globally unique id that is in a header in place of the id before the data; None: the id is before the data.
    """

    part: str
    format: str
    subject: str
    schema_id: int
    text: str
    named: tuple[tuple[str, str], ...] = ()
    guid: str | None = None

    def __str__(self) -> str:
        return f"schema {self.schema_id}" + (f" of subject {self.subject}" if self.subject else "")
