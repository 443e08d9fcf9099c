"""Which addresses may be in an object store, and how its libraries are told about it."""

from __future__ import annotations

import pytest

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.options.dead_letter_option import parse_dead_letters
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.state.object_store import (
    delta_options,
    iceberg_properties,
    unreachable,
)
from ottla_spark.loads.targets.address import parse_address


def test_parquet_in_s3_says_what_to_use() -> None:
    with pytest.raises(LoadUsageError, match=r"delta: or iceberg:.*hadoop-aws"):
        LoadOptions("t", parse_address("parquet:s3://lake/t"), {})
    assert LoadOptions("t", parse_address("delta:s3://lake/t/"), {}).to.location == "s3://lake/t"


def test_dead_letters_in_s3_are_a_delta_table() -> None:
    assert parse_dead_letters("delta:s3://lake/dead").is_delta
    with pytest.raises(LoadUsageError, match="use delta:s3://lake/dead"):
        parse_dead_letters("parquet:s3://lake/dead")


def test_the_address_of_a_compatible_store(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert (delta_options("s3://lake/t"), delta_options("/lake/t")) == ({}, None)
    assert iceberg_properties() == {}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store:9000")
    assert delta_options("s3://lake/t") == {
        "allow_http": "true",
        "aws_endpoint_url": "http://store:9000",
        "aws_region": "us-east-1",
    }
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert iceberg_properties() == {"s3.endpoint": "http://store:9000", "s3.region": "eu-west-1"}


def test_a_store_without_credentials_says_so_in_one_line() -> None:
    error = OSError(
        "Operation not supported\n  \x1b[31m↳\x1b[0m an error occurred\n"
        "   \x1b[31m↳\x1b[0m the caller has insufficient permissions.\n\n"
    )
    message = str(unreachable("s3://lake/t", error))
    assert message.startswith("cannot read s3://lake/t: the caller has insufficient permissions.")
    assert "AWS_ACCESS_KEY_ID" in message
    assert "\n" not in message
    error = OSError(
        "Generic S3 error\n  -> <Error><Code>NoSuchBucket</Code><Message>The specified bucket does"
        " not exist</Message><RequestId>BwVO6</RequestId></Error>"
    )
    message = str(unreachable("s3://nosuch/t", error))
    assert message.startswith("cannot read s3://nosuch/t: The specified bucket does not exist (")
    assert (
        str(unreachable("/lake/t", OSError("no permission")))
        == "cannot read /lake/t: no permission"
    )
