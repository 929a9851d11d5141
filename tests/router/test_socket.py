"""The clients over the router's Unix socket: the same interface at ``unix:///path``."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import trimtab
from tests.router.conftest import FAST, KEY
from trimtab import Pool, RouterAdmin, RouterClient, SyncRouterClient
from trimtab._core import DataPlane, Role
from trimtab.wire import Target


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: a socket's path is at most 107 bytes long."""
    with TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def pool() -> Pool:
    """Two engines that nobody listens on."""
    pool = Pool("rollout/default")
    for number in range(2):
        pool.add_backend(f"127.0.0.1:{1 + number}", id=f"e{number}")
    return pool


@pytest.fixture
def url(folder: Path, pool: Pool) -> Iterator[str]:
    """A router that asks for its key, also on its socket."""
    path = folder / "lease.sock"
    role = Role("rollout", {"default": pool})
    plane = DataPlane.start(
        roles=[role], admin_key=KEY, worker_threads=1, probe_interval_s=3600.0, lease_socket=str(path)
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    yield f"unix://{path}"
    plane.shutdown(0.0)
    assert not path.exists()


async def test_coroutines(url: str, pool: Pool) -> None:
    """An execution from its acquire to its settlement."""
    async with RouterClient(url, sender="rollout/0", owner="train", key=KEY, retry=FAST) as api:
        async with api.lease("traj-17", wait=10) as lease:
            assert pool.statistics().outstanding == 1
            lease.settle("completed", output_tokens=5)
        assert await api.close_session("traj-17") == (True, 0)
    assert pool.statistics().outstanding == 0


def test_threads(url: str, pool: Pool) -> None:
    """The same for threads, and for a controller."""
    with SyncRouterClient(url, sender="rollout/0", owner="train", key=KEY, retry=FAST) as api:
        with api.lease("traj-17", wait=10) as lease:
            lease.settle("completed")
        with RouterAdmin(url, key=KEY) as admin:
            admin.fence("train", "pause")
            with pytest.raises(trimtab.TrimtabError, match="fenced"), api.lease("traj-18"):
                pass
            admin.unfence("train", "pause")
    assert pool.statistics().outstanding == 0


def test_the_key_is_asked_for(url: str) -> None:
    """A key that is configured guards the socket as well."""
    with RouterAdmin(url, key="another-key") as admin, pytest.raises(trimtab.TrimtabError) as refused:
        admin.fence("train", "pause")
    assert refused.value.code == "forbidden"


def test_a_taken_socket(folder: Path, url: str) -> None:
    """A second router on the same path does not start; its message names the path and the way out."""
    path = url.removeprefix("unix://")
    role = Role("rollout", {"default": Pool("p")})
    with pytest.raises(trimtab.StartError, match="choose another path") as refused:
        DataPlane.start(roles=[role], lease_socket=path)
    assert path in str(refused.value)
    assert [found.name for found in folder.iterdir()] == ["lease.sock"]


@pytest.mark.parametrize("url", ["unix://", "unix://relative", "unix:///", "unix:///folder/", "unix:///a%00b"])
def test_urls_that_name_no_socket(url: str) -> None:
    """The path is absolute and names a file."""
    with pytest.raises(trimtab.InvalidRequest, match="unix:///path"):
        Target(url, None)


def test_a_socket_shows_in_its_target() -> None:
    """Escapes in the URL are undone; the text of a target is the URL that it was made of."""
    target = Target("unix:///run/a%20b.sock", None)
    assert target.socket == "/run/a b.sock"
    assert "unix:///run/a b.sock" in repr(target)
