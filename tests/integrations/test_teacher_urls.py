"""The forms of teacher URLs, and what is called for a sample."""

from __future__ import annotations

import pytest

from trimtab.integrations.relax import TeacherCall, TeacherUrls

GENERATE = "http://h:1/generate"


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/generate", "http://h:1/generate/"])
def test_generate_is_appended_once(url: str) -> None:
    """A raw engine, with or without the endpoint and a slash."""
    assert TeacherUrls(url).call() == TeacherCall(GENERATE)


@pytest.mark.parametrize("url", ["http://gw:8080/teacher", "http://gw:8080/teacher/generate"])
def test_a_gateway_is_told_route_and_group(url: str) -> None:
    """One URL for all: the value is the route key, the group the session."""
    call = TeacherUrls(url, gateway=True).call("openai/gsm8k", group=7)
    assert call.url == "http://gw:8080/teacher/generate"
    assert (call.members, call.headers) == ({"route_key": "openai/gsm8k"}, {"x-trimtab-session": "group-7"})
    assert TeacherUrls(url, gateway=True).call() == TeacherCall(call.url)


def test_a_group_stays_on_its_replica() -> None:
    """And groups take turns."""
    urls = TeacherUrls(["http://h:1", "http://h:2/generate"])
    called = [[urls.call(group=group).url for _ in range(2)] for group in range(3)]
    assert called == [[GENERATE] * 2, ["http://h:2/generate"] * 2, [GENERATE] * 2]


def test_a_map_has_no_default() -> None:
    """Keys may hold slashes; a missing one is ``ValueError``, an unknown one ``KeyError`` with the known ones."""
    urls = TeacherUrls({"openai/gsm8k": ["http://h:1"], "code": "http://h:2"})
    assert urls.call("openai/gsm8k").url == GENERATE
    assert urls.call("code").url == "http://h:2/generate"
    with pytest.raises(ValueError, match="openai/gsm8k"):
        urls.call()
    with pytest.raises(KeyError, match="openai/gsm8k"):
        urls.call("math")


@pytest.mark.parametrize("urls", [[], {}, "", "h:1", "ftp://h:1", "http://", {"a": []}])
def test_what_is_no_url(urls: object) -> None:
    """Refused when it is configured, not when a sample needs it."""
    with pytest.raises(ValueError, match="teacher"):
        TeacherUrls(urls)  # type: ignore[arg-type]


def test_a_gateway_has_no_map() -> None:
    """The map is the gateway's own configuration."""
    with pytest.raises(ValueError, match="route_keys"):
        TeacherUrls({"a": "http://gw/teacher"}, gateway=True)
