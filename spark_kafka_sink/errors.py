"""All errors that this package raises, in one class tree.

Each message begins with a stable code in brackets. Spark passes only an exception's text from a task to the driver, so programs
there can look for the code. All errors pickle, and none holds a secret.

Three branches say who has to act: the caller (`LocalError`), the cluster's operators (`PeerError`), or neither yet, because time
ran out (`DeadlineError`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

DOCS_URL: Final = "https://spark-kafka-sink.github.io/spark-kafka-sink"
"""Address of the documentation site."""


class KafkaSinkError(Exception):
    """Base class of all errors of this package.

    Attributes:
        code: stable code, with which the text begins in brackets.
        message: text without the code.
        facts: the things that the message names (topic, partition, option...), for programs to read.
    """

    code: ClassVar[str] = "KAFKA_SINK"

    def __init__(self, message: str, **facts: Any) -> None:
        if not message.isprintable():
            # A name or a text of another machine may hold anything, and must not move the cursor of a terminal.
            message = "".join(each if each.isprintable() or each == "\n" else ascii(each)[1:-1] for each in message)
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"

    @property
    def link(self) -> str:
        """Address of the documentation section about errors with this code."""
        return f"{DOCS_URL}/troubleshooting.html#{self.code.lower().replace('_', '-')}"


class LocalError(KafkaSinkError):
    """The caller asked for something that cannot be done. The same call fails again."""


class OptionError(LocalError):
    """An option is unknown, or its value has the wrong type, is out of range or contradicts another option."""

    code = "OPTION"


class SchemaError(LocalError):
    """A column of a DataFrame or of RecordColumns does not fit a Kafka record. The message names the column
    and the cast to use.
    """

    code = "SCHEMA"


class UsageError(LocalError):
    """A call came at the wrong time or place: on a closed producer, in a forked child, or with an unsupported trigger."""

    code = "USAGE"


class InstallationError(LocalError, ImportError):
    """A library is missing, broken or too old, or driver and executor run different versions of this package. `facts` has
    library, or driver and executor.
    """

    code = "INSTALLATION"


class SerializationError(LocalError):
    """A serializer cannot turn a key, a value or a column into bytes. The message names which one, its type and the expected
    type.
    """

    code = "SERIALIZATION"


class RecordError(LocalError):
    """A record is invalid: its topic is null, its partition does not exist, or a header has no key. The message names the row."""

    code = "RECORD"


class RecordTooLargeError(RecordError):
    """A record is larger than max.request.size or buffer.memory. It was rejected before it was buffered."""

    code = "RECORD_TOO_LARGE"


class PeerError(KafkaSinkError):
    """A broker rejected a request, failed, or sent an invalid response."""


class BrokerError(PeerError):
    """A broker responded with an error code. `facts` has error_code (int) and error (Kafka's name for it)."""

    code = "BROKER"


class AuthorizationError(BrokerError):
    """The client is not authorized for a request.

    `facts` has operation, resource, principal if it is known, and acl: the kafka-acls command that grants the permission.
    """

    code = "AUTHORIZATION"


class AuthenticationError(PeerError):
    """A login or a TLS handshake failed.

    The password, certificate or host name is wrong, or the other end does not support the mechanism or protocol. The same
    settings fail again, so nothing is retried. `facts` has broker.
    """

    code = "AUTHENTICATION"


class DisconnectedError(PeerError):
    """The connection could not be made, or was closed or reset before the response arrived."""

    code = "DISCONNECTED"


class ClusterChangedError(PeerError):
    """A broker's address belongs to another cluster now, so a task's or transaction's records would be in two clusters."""

    code = "CLUSTER_CHANGED"


class ProtocolError(PeerError):
    """The other end sent bytes that no broker sends: a frame too large, a length out of range, or a wrong correlation id."""

    code = "PROTOCOL"


class UnsupportedVersionError(PeerError):
    """The broker and this client have no common version of a required API."""

    code = "UNSUPPORTED_VERSION"


class TransactionError(PeerError):
    """A transaction cannot continue. `facts` has transactional_id and, if a broker rejected a request, error_code and error."""

    code = "TRANSACTION"


class TransactionAbortableError(TransactionError):
    """The transaction failed and can only be aborted. The first cause is `__cause__`. The producer remains usable after the
    abort.
    """

    code = "TRANSACTION_ABORTABLE"


class TransactionAbortedError(TransactionError):
    """A record was not sent because its transaction was aborted first."""

    code = "TRANSACTION_ABORTED"


class TransactionAuthorizationError(AuthorizationError, TransactionError):
    """A transaction cannot continue, because the client is not authorized for its transactional id, a topic or a group."""

    code = "TRANSACTION_AUTHORIZATION"


class ProducerFencedError(TransactionError):
    """Another producer now uses the transactional id, or the transaction exceeded transaction.timeout.ms."""

    code = "PRODUCER_FENCED"


class RegistryError(PeerError):
    """The schema registry could not be reached, rejected a request, or sent an invalid response.

    `facts` has url (without user and password) and, if they are known, status (the HTTP status), error_code (the registry's own
    code) and subject.
    """

    code = "REGISTRY"


class SchemaIncompatibleError(RegistryError):
    """A schema is not compatible with the versions of its subject in the schema registry. `facts` has subject."""

    code = "SCHEMA_INCOMPATIBLE"


class DeadlineError(KafkaSinkError):
    """An operation timed out. The message says what was tried."""

    code = "DEADLINE"


class MetadataTimeoutError(DeadlineError):
    """Timed out waiting for a topic's metadata (max.block.ms). The message names the brokers asked and the result of each
    request.
    """

    code = "METADATA_TIMEOUT"


class RegistryTimeoutError(RegistryError, DeadlineError):
    """Timed out waiting for the schema registry. The message says what was tried."""

    code = "REGISTRY_TIMEOUT"


class BufferExhaustedError(DeadlineError):
    """Timed out waiting for free buffer memory (max.block.ms)."""

    code = "BUFFER_EXHAUSTED"


class DeliveryTimeoutError(DeadlineError):
    """A batch was not acknowledged within delivery.timeout.ms. The message names the last error."""

    code = "DELIVERY_TIMEOUT"


class FlushTimeoutError(DeadlineError):
    """A flush or close timed out. The message says how much is still unacknowledged."""

    code = "FLUSH_TIMEOUT"


class TransactionTimeoutError(DeadlineError):
    """A transaction call timed out but still runs in the background. Make the same call again to wait for its end."""

    code = "TRANSACTION_TIMEOUT"


class ResultTimeoutError(DeadlineError, TimeoutError):
    """A future's result was not available in time. The record may still be delivered."""

    code = "RESULT_TIMEOUT"


class DeliveryError(KafkaSinkError):
    """Records of a send scope were not delivered. The first cause is `__cause__`; the message counts the acknowledged records."""

    code = "DELIVERY"


class CommitError(KafkaSinkError):
    """The transactions of a batch were not committed. `facts` has query_id and batch (int)."""

    code = "COMMIT"


class CommitStoppedError(CommitError):
    """The query stopped because continuing would lose or duplicate rows. It stops at every restart until an operator decides.

    With the reason TOPIC_REPLACED it stops once, because the rows that are gone went with their topic.

    `facts` also has reason (a name of `exactly_once.commit_rules.Reason`, or CHECKPOINT_DELETED), and the rows and
    transactional_ids concerned. The message has the command that resolves it.
    """

    code = "COMMIT_STOPPED"


class BatchAbortedError(CommitError):
    """The rows that this run wrote for the batch are not visible and never will be. Restart the query to write the
    batch again.
    """

    code = "BATCH_ABORTED"


class CommitTimeoutError(CommitError, DeadlineError):
    """A commit timed out. A further commit attempt completes it.

    `facts` has standing: what is known about its rows, as a name of `exactly_once.commit_errors.RowVisibility`.
    """

    code = "COMMIT_TIMEOUT"


class TooManyBadRowsError(KafkaSinkError):
    """More rows were bad than on.error.max.rows or on.error.max.fraction allow.

    `facts` has option, bad_rows (int), reasons (a count by reason), and rows (int) if all tasks were done.
    """

    code = "TOO_MANY_BAD_ROWS"


class DeadLetterError(KafkaSinkError):
    """A bad row could not be written to the dead-letter topic. `facts` has topic, and error if a broker rejected it."""

    code = "DEAD_LETTER"
