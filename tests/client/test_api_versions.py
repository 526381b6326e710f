"""API versions: the highest that both sides speak, and what to do with a broker that does not know ours of ApiVersions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.client import api_versions
from spark_kafka_sink.client.api_versions import (
    FinalizedFeatures,
    NodeApiVersions,
    fallback_version,
    node_api_versions,
    software_version,
)
from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import METADATA, ApiVersionsResponse, FinalizedFeatureKey
from spark_kafka_sink.protocol.apis.produce import PRODUCE
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.client.rig import versions
from tests.every import every

KAFKAS_OWN: Final[dict[str, dict[str, list[int]]]] = json.loads(
    (Path(__file__).parents[1] / "broker" / "kafka_api_versions.json").read_text()
)

# ApiVersionsRequest.SUPPORTED_CLIENT_SOFTWARE_NAME_PATTERN: brokers refuse anything else with INVALID_REQUEST.
ALLOWED = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def broker(low: int, high: int) -> NodeApiVersions:
    return node_api_versions("broker 1 (kafka:9092)", versions({PRODUCE.key: (low, high)}))


@given(low=st.integers(0, 20), high=st.integers(0, 20), maximum=st.none() | st.integers(0, 20))
def test_the_version_is_the_highest_of_both_and_never_outside_either(low: int, high: int, maximum: int | None) -> None:
    common = [v for v in range(low, high + 1) if PRODUCE.has_version(v) and (maximum is None or v <= maximum)]
    if common:
        assert broker(low, high).usable(PRODUCE, maximum) == max(common)
    else:
        with pytest.raises(UnsupportedVersionError):
            broker(low, high).usable(PRODUCE, maximum)


def of_kafka(release: str) -> NodeApiVersions:
    """A broker of a release, by Kafka's own message definitions (tests/broker/test_kafka_release.py)."""
    by_name = {key.name.replace("_", "").lower(): key for key in ApiKey}
    return NodeApiVersions("broker 1", {by_name[name.lower()]: (each[0], each[1]) for name, each in KAFKAS_OWN[release].items()})


@every("release", KAFKAS_OWN)
def test_the_release_is_the_one_whose_apis_the_broker_has(release: str) -> None:
    named = {"4.1": "4.1 or newer", **dict.fromkeys(("3.1", "3.2", "3.3", "3.4"), "3.1 to 3.4")}
    assert of_kafka(release).release == named.get(release, release)


def test_a_release_before_2_1_has_no_name() -> None:
    assert broker(0, 6).release == "older than 2.1"


def test_an_api_of_a_later_release_does_not_make_an_old_broker_a_new_one() -> None:
    mixed = {**of_kafka("2.8").ranges, PRODUCE.key: (0, 13)}
    assert NodeApiVersions("another product", mixed).release == "2.8"


def test_having_no_version_in_common_names_the_broker_the_api_and_both_ranges() -> None:
    with pytest.raises(
        UnsupportedVersionError, match=r"broker 1 \(kafka:9092\) supports PRODUCE v0 to v2, but this client v3 to v13"
    ):
        broker(0, 2).usable(PRODUCE)
    with pytest.raises(UnsupportedVersionError, match=r"broker 1 \(kafka:9092\) does not support METADATA"):
        broker(0, 2).usable(METADATA)


UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION


@every(
    "asked, error_code, offered, then",
    [
        (4, UNSUPPORTED, {18: (0, 3)}, 3),
        (4, UNSUPPORTED, {}, 0),
        (4, UNSUPPORTED, {3: (0, 9)}, 0),
        (4, UNSUPPORTED, {18: (0, 9)}, 3),
        (4, UNSUPPORTED, {18: (0, -5)}, 0),
        (0, UNSUPPORTED, {18: (0, 3)}, None),
        (4, ErrorCode.INVALID_REQUEST, {18: (0, 3)}, None),
        (4, ErrorCode.NONE, {18: (0, 3)}, None),
    ],
)
def test_a_refusal_leads_to_a_lower_version_or_to_an_end(
    asked: int, error_code: int, offered: dict[int, tuple[int, int]], then: int | None
) -> None:
    assert fallback_version(asked, versions(offered, error_code)) == then


def test_the_software_names_itself_in_letters_that_brokers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ALLOWED.fullmatch(api_versions.SOFTWARE_NAME)
    for installed in ("1.2.3", "0.1.0.dev0+g12ab"):
        monkeypatch.setattr(api_versions, "__version__", installed)
        assert ALLOWED.fullmatch(software_version())


def finalized(epoch: int, **levels: int) -> ApiVersionsResponse:
    features = [FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=0) for name, level in levels.items()]
    return ApiVersionsResponse(error_code=0, finalized_features_epoch=epoch, finalized_features=features)


@pytest.mark.parametrize("order", [(7, 3), (3, 7)])
def test_of_what_brokers_say_is_finalized_the_newest_epoch_counts(order: tuple[int, int]) -> None:
    features = FinalizedFeatures()
    for epoch in order:
        features.update(finalized(epoch, transaction=epoch), epoch)

    assert features.level("transaction") == 7


def test_a_feature_that_is_not_finalized_is_at_level_0() -> None:
    features = FinalizedFeatures()
    before = features.level("transaction")
    features.update(finalized(7, transaction=2), 1)
    features.update(finalized(8), 1)
    features.update(finalized(-1, transaction=1), 2)  # of no epoch: the broker does not know

    assert (before, features.level("transaction")) == (0, 0)


def test_the_epoch_of_another_cluster_does_not_count() -> None:
    features = FinalizedFeatures()
    features.update(finalized(700, transaction=2), 1)
    features.update(finalized(7, transaction=1), 2)
    before = features.level("transaction")
    features.begin_again(2)
    after = features.level("transaction")
    features.update(finalized(8), 3)

    later = features.level("transaction")
    features.begin_again(1)  # whose connection has lasted

    assert (before, after, later, features.level("transaction")) == (2, 1, 0, 2)
