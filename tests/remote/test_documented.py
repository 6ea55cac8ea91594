"""Test that the web server of docs/remote.md does what the page says."""

import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.doc_pages import read_page
from support.driver import ENTRY, Host
from support.servers import NGINX_CONF, Server, free_port, needs_nginx, nginx, running

pytestmark = needs_nginx


@pytest.fixture
def documented(tmp_path: Path) -> Iterator[Server]:
    """Run nginx with the page's configuration at a directory and port of its own. Builders have a
    password."""
    (block,) = (b for b in read_page("docs/remote.md").blocks if b.title == "lazyck.conf")
    server = nginx(tmp_path / "nginx")
    server.port = free_port()
    server.url = f"http://127.0.0.1:{server.port}"
    passwords = server.root / "htpasswd"
    passwords.write_text("builder:{PLAIN}sesame\n")
    text = block.text.replace("listen 8080", f"listen 127.0.0.1:{server.port}")
    text = text.replace("/srv/lazyck", str(server.root / "objects")).replace(
        "/etc/nginx/lazyck.htpasswd", str(passwords)
    )
    around = NGINX_CONF.format(root=server.root, port=server.port, user="user root;" if os.geteuid() == 0 else "")
    whole = re.sub(r"    server \{.*\n    \}\n", lambda _: text, around, flags=re.DOTALL)
    (server.root / "nginx.conf").write_text(whole)
    with running(server):
        yield server


def test_builders_push_and_everybody_reads(documented: Server, tmp_path: Path) -> None:
    address = documented.url.removeprefix("http://")
    builder = Host(tmp_path / "1", f"http://builder:sesame@{address}|trusted")
    runtime = builder.miss()
    assert runtime.verdict() == "compile"
    builder.make(runtime)
    assert not runtime.of("skipped")
    assert [p.name for p in (documented.root / "objects" / "ac").iterdir()] == [ENTRY.record[3:]]
    reader = Host(tmp_path / "2", f"{documented.url}|trusted|read-only")
    assert reader.miss().verdict() == "hit"


def test_others_cannot_write(documented: Server, tmp_path: Path) -> None:
    host = Host(tmp_path / "1", f"{documented.url}|trusted")
    runtime = host.miss()
    assert runtime.verdict() == "compile"
    host.make(runtime)
    assert not (documented.root / "objects" / "ac").exists()
    for path in ("/ac/x", "/other", "/ac/", f"/ac/{'0' * 64}/x", "/.incoming/x", "/"):
        request = urllib.request.Request(documented.url + path, b"x", method="PUT")
        with pytest.raises(urllib.error.HTTPError) as e:
            urllib.request.urlopen(request, timeout=10)
        assert e.value.code == 404, path
