"""What goes wrong ends in the exit code for it and one message that names the thing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobs import export_batch, publish_stream, verify_topic
from jobs.outcome import ExitCode
from tests.jobs.job_process import CHECKOUT, JobProcess, environment, spark_arguments
from tests.kafka.kafka import Kafka
from tests.kafka.ports import free_ports


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    """Right settings, of a source that is there, for a Kafka that is not."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text('{"value": "v"}\n')
    file = tmp_path / "job.toml"
    file.write_text(
        f'[source]\nformat = "json"\npath = "{tmp_path / "in"}"\nschema = "value string"\n'
        f'[sink]\nkafka.bootstrap.servers = "127.0.0.1:{free_ports(1)[0]}"\nkafka.max.block.ms = 1500\ntopic = "nowhere"\n'
        f'[query]\ncheckpoint = "{tmp_path / "checkpoint"}"\ntrigger = "availableNow"\n'
    )
    return file


@pytest.mark.parametrize("job", [export_batch, publish_stream, verify_topic], ids=lambda job: job.__name__)
def test_help_has_an_example_and_the_exit_codes(job: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        job.main(["--help"])  # type: ignore[attr-defined]

    assert end.value.code == ExitCode.OK
    out = capsys.readouterr().out
    assert "example:\n  spark-submit --master 'local[*]' jobs/" in out
    assert "4 differences found" in out


@pytest.mark.parametrize("job", [export_batch, publish_stream, verify_topic], ids=lambda job: job.__name__)
@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("sink.kafka.linger=5", "[OPTION] unknown option kafka.linger; did you mean kafka.linger.ms?"),
        ("sink.kafka.acks=2", "[OPTION] option kafka.acks: '2' is not one of all, -1, 0, 1"),
        ("snk.topic=a", "unknown section [snk]; did you mean sink?"),
    ],
)
def test_wrong_settings_are_told_before_spark_starts(
    job: object, job_file: Path, override: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = job.main([str(job_file), "--set", override])  # type: ignore[attr-defined]

    assert code == ExitCode.SETTINGS
    err = capsys.readouterr().err
    assert f"error: {problem}\n" in err if problem.startswith("[") else problem in err
    assert err.endswith("exit code 2 (SETTINGS)\n")


def test_a_topic_of_a_serializer_that_cannot_be_read_back_is_not_verified(
    job_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = verify_topic.main([str(job_file), "--set", "sink.kafka.value.serializer=uuid"])

    assert code == ExitCode.SETTINGS
    problem = "option kafka.value.serializer: records of UUIDSerializer cannot be read back, so the topic cannot be verified"
    assert problem in capsys.readouterr().err


def test_a_command_line_without_settings_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        export_batch.main([])

    assert end.value.code == ExitCode.SETTINGS
    assert "required: settings" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("source.schema=v string", "[SCHEMA] column value is required"),
        ("source.path=/no/such/place", "[PATH_NOT_FOUND]"),
    ],
)
def test_a_source_that_is_no_source_of_records_is_a_wrong_setting(
    jobs: JobProcess, job_file: Path, override: str, problem: str
) -> None:
    ended = jobs.run("export_batch", job_file, "--set", override)

    assert ended.code == ExitCode.SETTINGS
    assert f"\nerror: {problem}" in f"\n{ended.err}"


@pytest.mark.spark
def test_an_unknown_topic_ends_it_with_one_error(jobs: JobProcess, job_file: Path, kafka: Kafka) -> None:
    sets = f"sink.kafka.bootstrap.servers={kafka.bootstrap_servers}", "sink.kafka.max.block.ms=3000"
    ended = jobs.run("publish_stream", job_file, *(part for each in sets for part in ("--set", each)))

    assert ended.code == ExitCode.KAFKA
    assert "error: [METADATA_TIMEOUT] topic nowhere: " in ended.err
    assert "UNKNOWN_TOPIC_OR_PARTITION" in ended.err


def test_a_topic_that_is_not_there_cannot_be_verified(kafka: Kafka, job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = verify_topic.main([str(job_file), "--set", f"sink.kafka.bootstrap.servers={kafka.bootstrap_servers}"])

    assert code == ExitCode.KAFKA
    assert f"[READ_BACK] topic nowhere at {kafka.bootstrap_servers} cannot be read: " in capsys.readouterr().err


def test_a_script_ends_with_the_exit_code(job_file: Path, tmp_path: Path) -> None:
    script = [sys.executable, str(CHECKOUT / "jobs" / "publish_stream.py"), str(job_file), "--set", "snk.topic=a"]
    ended = subprocess.run(script, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=110, check=False)

    assert ended.returncode == ExitCode.SETTINGS
    assert "unknown section [snk]" in ended.stderr


@pytest.mark.spark
@pytest.mark.whole("a start of Spark; the test before it has the script's exit code, which spark-submit takes as its own")
def test_spark_submit_passes_the_exit_code_on_and_a_missing_kafka_source_is_explained(job_file: Path, tmp_path: Path) -> None:
    submit = [str(Path(sys.executable).with_name("spark-submit")), *spark_arguments()]
    job = [str(CHECKOUT / "jobs" / "publish_stream.py"), str(job_file), "--set", "source.format=kafka"]

    ended = subprocess.run(
        [*submit, *job], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=110, check=False
    )

    assert ended.returncode == ExitCode.SETTINGS
    # spark-submit joins the two streams of a Python program in its own stdout.
    assert "error: " in ended.stdout
    assert "add --packages org.apache.spark:spark-sql-kafka-0-10_2.13:" in ended.stdout
    # Spark logs a few lines before it reads spark.log.level, and hundreds at INFO.
    assert (ended.stdout + ended.stderr).count(" INFO ") < 10
