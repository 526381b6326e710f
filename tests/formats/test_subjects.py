"""Names of subjects and of derived records."""

from __future__ import annotations

import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.formats.subjects import derived_name, subject_name
from spark_kafka_sink.options.schema_options import schema_config


@pytest.mark.parametrize(
    ("strategy", "part", "subject"),
    [
        ("topic", "key", "orders-key"),
        ("topic", "value", "orders-value"),
        ("record", "value", "shop.Order"),
        ("topic-record", "value", "orders-shop.Order"),
    ],
)
def test_a_strategy_names_the_subject(strategy: str, part: str, subject: str) -> None:
    assert subject_name(schema_config(part, {"subject.name.strategy": strategy}), "orders", "shop.Order") == subject


@pytest.mark.parametrize("strategy", ["topic", "topic-record"])
def test_topics_of_rows_need_the_record_strategy(strategy: str) -> None:
    config = schema_config("value", {"subject.name.strategy": strategy})
    with pytest.raises(OptionError, match="rows name their own topics"):
        subject_name(config, None, "shop.Order")
    assert subject_name(schema_config("value", {"subject.name.strategy": "record"}), None, "shop.Order") == "shop.Order"


def test_a_schema_without_a_name_has_no_record_subject() -> None:
    with pytest.raises(OptionError, match="the schema of value is not a record; use topic"):
        subject_name(schema_config("value", {"subject.name.strategy": "record"}), "orders", None)
    with pytest.raises(OptionError, match="give the schema of value a title, or use topic"):
        subject_name(schema_config("value", {"subject.name.strategy": "record"}, "json-schema"), "orders", None)
    for latest in ({"use.latest.version": True}, {"use.latest.with.metadata": {"stage": "live"}}):
        config = schema_config("value", {"subject.name.strategy": "record", **latest})
        with pytest.raises(OptionError, match=r"set value\.schema\.name"):
            subject_name(config, "orders", None)


@pytest.mark.parametrize(
    ("topic", "name"), [("orders", "orders_value"), ("shop.new-orders", "shop_new_orders_value"), ("2026", "_2026_value")]
)
def test_a_derived_record_is_named_after_the_topic(topic: str, name: str) -> None:
    assert derived_name(schema_config("value", {}), topic) == name


def test_a_derived_record_may_have_a_given_name() -> None:
    assert derived_name(schema_config("value", {"value.schema.name": "shop.Order"}), None) == "shop.Order"
    with pytest.raises(OptionError, match=r"option value\.schema\.name is required"):
        derived_name(schema_config("value", {}), None)
