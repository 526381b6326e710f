"""Every error this package raises, in one tree.

Each message begins with a stable code in brackets: Spark carries only the text of an exception from a task to the
driver, so the code is what a program there can look for. All of them pickle. None of them ever holds a secret.

Three branches keep apart who has to act: the caller (`LocalError`), the cluster (`PeerError`), and time (`DeadlineError`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

DOCS_URL: Final = "https://spark-kafka-sink.github.io/spark-kafka-sink"
"""Address of the documentation site."""


class KafkaSinkError(Exception):
    """The root. code: what its text begins with, in brackets. message: the text without it. facts: the things that the message
    names (topic, partition, option...), for programs to read.
    """

    code: ClassVar[str] = "KAFKA_SINK"

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"

    @property
    def link(self) -> str:
        """Address of the documentation's section about errors with this code: cause and fix."""
        return f"{DOCS_URL}/troubleshooting.html#{self.code.lower().replace('_', '-')}"


class LocalError(KafkaSinkError):
    """What the caller asked for cannot be done; asking again the same way ends the same way."""


class OptionError(LocalError):
    """An option is unknown, ill-typed, out of range, or not to be combined with another."""

    code = "OPTION"


class SchemaError(LocalError):
    """Columns are not those of a Kafka record, of a DataFrame or RecordColumns; names the column and the cast to use."""

    code = "SCHEMA"


class UsageError(LocalError):
    """A call at the wrong time or place: a closed producer, a forked child, an unsupported trigger."""

    code = "USAGE"


class InstallationError(LocalError, ImportError):
    """A library is missing, broken or too old, or driver and executor run different versions of this package. `facts` has
    library, or driver and executor.
    """

    code = "INSTALLATION"


class SerializationError(LocalError):
    """A serializer cannot make bytes of a key or value, or of a column; names which, its type and what is wanted."""

    code = "SERIALIZATION"


class RecordError(LocalError):
    """One record cannot be written: a null topic, a partition out of range, a null header key. Names the row."""

    code = "RECORD"


class RecordTooLargeError(RecordError):
    """One record is larger than max.request.size or buffer.memory; it was rejected before it was buffered."""

    code = "RECORD_TOO_LARGE"


class PeerError(KafkaSinkError):
    """A broker refused, failed, or answered what it should not."""


class BrokerError(PeerError):
    """A broker answered an error code. `facts` has error_code (int) and error (Kafka's name for it)."""

    code = "BROKER"


class AuthorizationError(BrokerError):
    """The client is not authorized for what it asked. `facts` has principal where it is known, operation, resource, and acl: the
    line of kafka-acls that grants it."""

    code = "AUTHORIZATION"


class AuthenticationError(PeerError):
    """A login or a TLS handshake failed: a wrong password, certificate or host name, or a mechanism or protocol that the other
    end does not speak. The same settings fail again, so nothing is retried. `facts` has broker."""

    code = "AUTHENTICATION"


class DisconnectedError(PeerError):
    """The connection was closed or reset, or could not be made, before the answer came."""

    code = "DISCONNECTED"


class ProtocolError(PeerError):
    """Bytes that no broker should send: a frame too large, a length out of range, a wrong correlation id."""

    code = "PROTOCOL"


class UnsupportedVersionError(PeerError):
    """The broker and this client share no version of an API that is needed."""

    code = "UNSUPPORTED_VERSION"


class TransactionError(PeerError):
    """A transaction cannot go on. `facts` has transactional_id, and where a broker said so error_code and error."""

    code = "TRANSACTION"


class TransactionAbortableError(TransactionError):
    """A transaction can only be aborted: something of it failed. The first cause is `__cause__`. The producer can go on."""

    code = "TRANSACTION_ABORTABLE"


class TransactionAbortedError(TransactionError):
    """A record was not sent, because its transaction was aborted before that."""

    code = "TRANSACTION_ABORTED"


class TransactionAuthorizationError(AuthorizationError, TransactionError):
    """A transaction cannot go on, because the client is not authorized for its transactional id, a topic or a group."""

    code = "TRANSACTION_AUTHORIZATION"


class ProducerFencedError(TransactionError):
    """Another producer has the transactional id now, or the transaction took longer than transaction.timeout.ms."""

    code = "PRODUCER_FENCED"


class DeadlineError(KafkaSinkError):
    """Something did not happen in time; the message says what was tried meanwhile."""

    code = "DEADLINE"


class MetadataTimeoutError(DeadlineError):
    """A topic's metadata did not arrive within max.block.ms; names the brokers asked and what each said."""

    code = "METADATA_TIMEOUT"


class BufferExhaustedError(DeadlineError):
    """No buffer memory became free within max.block.ms."""

    code = "BUFFER_EXHAUSTED"


class DeliveryTimeoutError(DeadlineError):
    """A batch was not acknowledged within delivery.timeout.ms; names the last error it met."""

    code = "DELIVERY_TIMEOUT"


class FlushTimeoutError(DeadlineError):
    """A flush or close did not end in time; says how much was still on its way."""

    code = "FLUSH_TIMEOUT"


class TransactionTimeoutError(DeadlineError):
    """A call about a transaction did not end in time, and goes on. The same call again waits for its end."""

    code = "TRANSACTION_TIMEOUT"


class ResultTimeoutError(DeadlineError, TimeoutError):
    """A future's result was not there in time; the record may still be delivered."""

    code = "RESULT_TIMEOUT"


class DeliveryError(KafkaSinkError):
    """Records of a send scope were not delivered. The first cause is `__cause__`; the text counts what was acked."""

    code = "DELIVERY"


class CommitError(KafkaSinkError):
    """A batch's transactions were not committed. `facts` has query_id and batch (int)."""

    code = "COMMIT"


class CommitStoppedError(CommitError):
    """Going on would lose or double rows: it stops again until somebody has decided. `facts` has reason too (a name of
    `exactly_once.rules.Reason`), the rows and the transactional_ids of it; the text has the command that resolves it.
    """

    code = "COMMIT_STOPPED"


class BatchAbortedError(CommitError):
    """What this run wrote of the batch is not visible, nor will it be: starting the query again writes the batch again."""

    code = "BATCH_ABORTED"


class CommitTimeoutError(CommitError, DeadlineError):
    """A commit did not end in time. `facts` has standing: what is known of its rows, as a name of
    `exactly_once.commit_errors.RowVisibility`. A further attempt of the commit does what is left.
    """

    code = "COMMIT_TIMEOUT"
