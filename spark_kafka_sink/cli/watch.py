"""The command `spark-kafka-sink watch`. It imports its modules when it runs."""

from __future__ import annotations

import sys

import click

from spark_kafka_sink.installation import check_libraries


@click.command(epilog="Exits with 0, or with 1 if the page does not answer at the start or at the end, or is another program's.")
@click.option(
    "--url",
    default="http://127.0.0.1:9404/metrics",
    show_default=True,
    metavar="URL",
    help="The page that serve_prometheus(metrics) serves in the driver.",
)
@click.option(
    "--interval",
    "interval_s",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0.1, 3600),
    help="Seconds between two looks at the page.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    help="Seconds until the command ends.  [default: it waits for Ctrl+C]",
)
def watch(url: str, interval_s: float, timeout_s: float | None) -> None:
    """Show the streaming queries of a driver that serves its metrics.

    Shows a line for each query: its last micro-batch, its rates, latencies, retries, and by how much its next commit is late. In
    a terminal the table is replaced in place. Otherwise a line is printed for each micro-batch that is seen. Ctrl+C ends the
    command, and nothing else. It needs the extra `prometheus`.
    """
    check_libraries()  # ahead of the modules that import them, so that a broken library is one line
    from spark_kafka_sink.exporters.scraped import NotOursError, is_web_address, read_page
    from spark_kafka_sink.spark.driver.views.watch import NoAnswerError, screen_of, table_for
    from spark_kafka_sink.spark.driver.views.watch import watch as run

    if not is_web_address(url):
        raise click.BadParameter("must be http://HOST:PORT/PATH or https://HOST:PORT/PATH, without a user", param_hint="--url")
    try:
        read_page(url)  # at the start a wrong address is likelier than a driver that is about to come
        problem = run(
            lambda: read_page(url),
            table_for(sys.stdout),
            screen_of(sys.stdout, sys.stderr),
            interval_s=interval_s,
            timeout_s=timeout_s,
            again=True,
        )
    except (NoAnswerError, NotOursError) as error:
        hint = (
            "" if isinstance(error, NotOursError) else ". Does the driver run, and has it called sks.serve_prometheus(metrics)?"
        )
        raise click.ClickException(f"{error}{hint}") from None
    if problem:
        raise click.ClickException(problem)
