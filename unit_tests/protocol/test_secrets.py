"""Which values are secret, and that none of them is left in a text."""

from __future__ import annotations

from airbyte_cdk.utils.airbyte_secrets_utils import get_secrets

from destination_s3_spark.protocol.secrets import SecretFilter, secrets_of

SCHEMA = {
    "properties": {
        "key": {"type": "string", "airbyte_secret": True},
        "name": {"type": "string"},
        "number": {"type": "integer", "airbyte_secret": True},
        "login": {
            "type": "object",
            "oneOf": [
                {"properties": {"kind": {"const": "token"}, "token": {"type": "string", "airbyte_secret": True}}},
                {"properties": {"kind": {"const": "user"}, "user": {"type": "object", "properties": {"pin": {"airbyte_secret": True}}}}},
            ],
        },
    }
}


def test_values_are_secret_at_any_depth_and_in_any_variant_as_the_cdk_finds_them() -> None:
    for options in (
        {"key": "k", "name": "n", "number": 7},
        {"key": "k", "login": {"kind": "token", "token": "t"}},
        {"login": {"kind": "user", "user": {"pin": "p"}}},
        {"name": "n"},
    ):
        assert sorted(secrets_of(SCHEMA, options)) == sorted(map(str, get_secrets(SCHEMA, options)))


def test_options_of_an_unexpected_kind_have_no_secrets_inside() -> None:
    assert list(secrets_of(SCHEMA, {"login": "text", "key": None})) == []


def test_a_secret_inside_another_leaves_nothing_of_either() -> None:
    secrets = SecretFilter()
    secrets.add(["abc", ""])
    secrets.add(["xabcx"])
    assert secrets.masked("an xabcx and an abc") == "an **** and an ****"


def test_without_secrets_a_text_stays_as_it_is() -> None:
    assert SecretFilter().masked("text") == "text"
