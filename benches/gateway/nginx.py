"""nginx with one worker and nothing in its way, as engines and as a router."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benches.gateway.tools import program

if TYPE_CHECKING:
    from pathlib import Path

_CONFIG = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  client_body_buffer_size 1m; client_max_body_size 64m;
  keepalive_requests 1000000000; keepalive_timeout 1h; tcp_nodelay on;
{servers}
}}
"""


def command(folder: Path, servers: str) -> list[str]:
    """How to start it with these blocks inside ``http``; its files stay in ``folder``."""
    config = folder / "nginx.conf"
    config.write_text(_CONFIG.format(folder=folder, servers=servers))
    return [program("nginx"), "-c", str(config), "-p", str(folder)]
