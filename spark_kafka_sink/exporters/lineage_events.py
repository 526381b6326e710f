"""Makes OpenLineage's events, with the classes of its Python client."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from spark_kafka_sink.exporters.lineage_runs import Output, RunChange
from spark_kafka_sink.exporters.lineage_settings import LineageSettings, OuterRun
from spark_kafka_sink.spark.destination import Field
from spark_kafka_sink.version import __version__

if TYPE_CHECKING:
    from openlineage.client.event_v2 import OutputDataset, RunEvent
    from openlineage.client.facet_v2 import RunFacet
    from openlineage.client.generated.schema_dataset import SchemaDatasetFacetFields

PRODUCER: Final = f"https://github.com/spark-kafka-sink/spark-kafka-sink/tree/v{__version__}"


def run_event(change: RunChange, settings: LineageSettings) -> RunEvent:
    """Returns the event of a run's change."""
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import job_type_job

    kind = job_type_job.JobTypeJobFacet(
        processingType="STREAMING" if change.is_stream else "BATCH", integration="SPARK", jobType="JOB", producer=PRODUCER
    )
    return RunEvent(
        eventType=RunState(change.state.value),
        eventTime=datetime.fromtimestamp(change.at, UTC).isoformat(timespec="milliseconds"),
        run=Run(runId=change.run_id, facets=_run_facets(change, settings)),
        job=Job(namespace=settings.namespace, name=change.job, facets={"jobType": kind}),
        outputs=[_dataset(output) for output in change.outputs],
        inputs=[],
        producer=PRODUCER,
    )


def _run_facets(change: RunChange, settings: LineageSettings) -> dict[str, RunFacet]:
    from openlineage.client.facet_v2 import error_message_run, processing_engine_run

    facets: dict[str, Any] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            version=settings.spark_version, name="spark", openlineageAdapterVersion=__version__, producer=PRODUCER
        )
    }
    if settings.parent is not None:
        facets["parent"] = _parent(settings.parent, settings.root)
    if change.error is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=change.error, programmingLanguage="PYTHON", producer=PRODUCER
        )
    return facets


def _parent(parent: OuterRun, root: OuterRun | None) -> RunFacet:
    from openlineage.client.facet_v2 import parent_run

    outermost = None
    if root is not None:
        outermost = parent_run.Root(
            run=parent_run.RootRun(runId=root.run_id), job=parent_run.RootJob(namespace=root.namespace, name=root.name)
        )
    return parent_run.ParentRunFacet(
        run=parent_run.Run(runId=parent.run_id),
        job=parent_run.Job(namespace=parent.namespace, name=parent.name),
        root=outermost,
        producer=PRODUCER,
    )


def _dataset(output: Output) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import datasource_dataset, output_statistics_output_dataset, schema_dataset

    facets: dict[str, Any] = {
        "dataSource": datasource_dataset.DatasourceDatasetFacet(name=output.namespace, uri=output.namespace, producer=PRODUCER)
    }
    if output.fields:
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=[_field(one) for one in output.fields], producer=PRODUCER)
    written: dict[str, Any] = {}
    if output.records is not None:
        written["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=output.records, size=output.bytes, producer=PRODUCER
        )
    return OutputDataset(namespace=output.namespace, name=output.topic, facets=facets, outputFacets=written)


def _field(field: Field) -> SchemaDatasetFacetFields:
    from openlineage.client.facet_v2 import schema_dataset

    inner = [_field(one) for one in field.fields]
    return schema_dataset.SchemaDatasetFacetFields(
        name=field.name, type=field.type, description=field.text or None, fields=inner or None
    )
