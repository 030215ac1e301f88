"""Which values are secret, and that none of them is left in a text."""

from __future__ import annotations

from airbyte_cdk.utils.airbyte_secrets_utils import get_secrets

from destination_s3_spark.protocol.secrets import SecretFilter, secrets_of
from unit_tests.cases import each

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


@each(
    ("text", "masked"),
    [
        ("c_testunions, attest, test2, my-test, test.users, shop.test", None),
        ("test", "****"),
        ("the key 'test' is refused: test.", "the key '****' is refused: ****."),
        ("Credential=test/20260101/us-east-1/s3, user=test&x", "Credential=****/20260101/us-east-1/s3, user=****&x"),
    ],
)
def test_a_short_secret_is_masked_only_where_it_is_a_word(text: str, masked: str | None) -> None:
    secrets = SecretFilter()
    secrets.add(["test"])
    assert secrets.masked(text) == (masked or text)


def test_a_long_secret_is_masked_wherever_it_stands() -> None:
    secrets = SecretFilter()
    secrets.add(["s3cr+t/=", "12345678"])
    assert secrets.masked("as3cr+t/=b_12345678-x") == "a****b_****-x"


def test_without_secrets_a_text_stays_as_it_is() -> None:
    assert SecretFilter().masked("text") == "text"
