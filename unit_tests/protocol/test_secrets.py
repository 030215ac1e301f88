"""Which values are secret, and that none of them is left in a text."""

from __future__ import annotations

import json
from urllib.parse import quote, quote_plus, urlencode

import orjson
from airbyte_cdk.utils.airbyte_secrets_utils import get_secrets

from destination_s3_spark.protocol.secrets import SecretFilter, secrets_of, secrets_of_environment
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


AWKWARD = """p"a\\s/w'o@r d+é%&"""


@each(
    "spelt",
    [
        AWKWARD,
        json.dumps(AWKWARD),
        json.dumps(AWKWARD, ensure_ascii=False),
        json.dumps(AWKWARD).replace("/", "\\/"),
        orjson.dumps({"a": AWKWARD}).decode(),
        repr(AWKWARD),
        repr([AWKWARD, '"']),
        repr("it's " + AWKWARD),
        repr(AWKWARD.encode()),
        quote(AWKWARD),
        quote(AWKWARD, safe=""),
        quote_plus(AWKWARD),
        quote(AWKWARD, safe="").lower(),
        urlencode({"password": AWKWARD}),
    ],
)
def test_a_secret_is_masked_as_programs_spell_it(spelt: str) -> None:
    secrets = SecretFilter()
    secrets.add([AWKWARD])
    masked = secrets.masked(f"said {spelt} and more")

    assert "****" in masked
    assert not any(part in masked for part in ('p"', "a\\", "w'o", "o@r", "%C3", "w%27", "é"))


def test_a_plain_short_secret_is_still_a_word_in_every_spelling() -> None:
    secrets = SecretFilter()
    secrets.add(["a/b"])
    assert secrets.masked("a/b a%2Fb a\\/b xa/b a%2Fbx") == "**** **** **** xa/b a%2Fbx"


@each(
    ("secret", "quoted"),
    [
        ("postgresql+psycopg2://shop:pass-word%40x@db/iceberg", "pass-word%40x"),
        ("postgresql+psycopg2://shop:pass-word%40x@db/iceberg", "pass-word@x"),
        ("postgresql+psycopg2://shop:first/part@Rest@db/iceberg", "first/part@Rest"),
        ("postgresql+psycopg2://shop:first/part@Rest@db/iceberg", "first/part"),
        ("client-id:client-secret", "client-secret"),
    ],
)
def test_the_secret_part_of_an_address_or_a_pair_is_masked_by_itself(secret: str, quoted: str) -> None:
    secrets = SecretFilter()
    secrets.add([secret])
    assert secrets.masked(f"said '{quoted}'") == "said '****'"


def test_values_of_the_environment_are_secret_by_their_names() -> None:
    environ = {
        "AWS_SECRET_ACCESS_KEY": "of-the-platform",
        "AWS_SESSION_TOKEN": "token-of-it",
        "db_password": "12345678",
        "MY_SECRETS": "a-secret-thing",
        "AWS_ASSUME_ROLE_EXTERNAL_ID": "id",
        "SHORT_KEY": "1234567",
        "HOME": "/home/airbyte-of-it",
    }
    assert set(secrets_of_environment(environ)) == {"of-the-platform", "token-of-it", "12345678", "a-secret-thing", "id"}


def test_without_secrets_a_text_stays_as_it_is() -> None:
    assert SecretFilter().masked("text") == "text"
