"""`watch`: the streaming queries of a driver, from the page of its metrics."""

from __future__ import annotations

import sys

import click

from spark_kafka_sink.exporters.scraped import NotOursError, is_web_address, read_page
from spark_kafka_sink.spark.driver.views.watch import NoAnswerError, screen_of, table_for, watch


def watch_page(url: str, interval_s: float, timeout_s: float | None) -> None:
    """Shows the queries until Ctrl+C or `timeout_s`. Raises a ClickException if the page does not answer, or is another's."""
    if not is_web_address(url):
        raise click.BadParameter("must be http://HOST:PORT/PATH or https://HOST:PORT/PATH, without a user", param_hint="--url")
    try:
        read_page(url)  # at the start a wrong address is likelier than a driver that is about to come
        problem = watch(
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
