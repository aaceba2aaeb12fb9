"""Cards are sent to the Hub and fetched from it, by its own client, against a server on this machine with a folder."""

from __future__ import annotations

import base64
import json
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.errors import CardError, VictimError

pytest.importorskip("huggingface_hub")

ZOO = Path(adv.__file__).parent / "zoo" / "cartpole-dqn"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """What of the Hub's interface sending and fetching files needs; ``server.folder`` has the files of a commit."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, body, status=200, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        found = {}
        if self.path == "/api/repos/create":
            found = {"url": f"{self.server.url}/somebody/pole"}
        elif self.path.endswith("/preupload/main"):
            names = [file["path"] for file in json.loads(text)["files"]]
            found = {"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]}
        elif self.path.endswith("/commit/main"):
            for line in map(json.loads, text.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    (self.server.folder / line["value"]["path"]).write_bytes(content)
            found = {"commitOid": COMMIT, "commitUrl": f"{self.server.url}/somebody/pole/commit/{COMMIT}"}
        self.answer(json.dumps(found).encode(), Content_Type="application/json")

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.server.asked.append(self.path)
        start, _, rest = self.path.partition("/resolve/")
        revision, _, name = rest.partition("/")
        path = self.server.folder / name
        if start != "/somebody/pole" or revision not in ("main", COMMIT) or not path.is_file():
            self.answer(b"", 404, X_Error_Code="EntryNotFound" if start == "/somebody/pole" else "RepoNotFound")
            return
        self.answer(path.read_bytes(), ETag=f'"{name}-{path.stat().st_size}"', X_Repo_Commit=COMMIT)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub at an address of this machine, which the client's constants name instead of the real one."""
    from huggingface_hub import HfApi, constants

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.folder, server.asked = tmp_path / "hub", []
    server.folder.mkdir()
    server.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
    assert HfApi().endpoint == server.url
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_card_comes_back_as_it_was_sent(hub, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(ZOO, tmp_path / "card"))
    (folder / "README.md").write_text("# pole")
    (folder / "secret.txt").write_text("not part of a card")
    ref = adv.push_to_hub(folder, "somebody/pole")
    assert ref == f"hub:somebody/pole@{COMMIT}"
    assert sorted(path.name for path in hub.folder.iterdir()) == ["README.md", "card.json", "weights.safetensors"]

    victim, local = adv.load_victim("hub:somebody/pole@main"), adv.load_victim(f"card:{folder}")
    assert victim.ref == ref and victim.fingerprint() == local.fingerprint()
    x = torch.randn(5, 4)
    assert torch.equal(victim.params(x), local.params(x))
    assert not any("README" in path for path in hub.asked)

    # a commit that has been fetched needs no network
    hub.asked.clear()
    threat = adv.threat("pgd", adv.load_victim(ref), eps=0.1)
    assert adv.ThreatModel.from_dict(json.loads(json.dumps(threat.to_dict())), adv.load_victim).label == threat.label
    assert hub.asked == []


def test_what_cannot_be_fetched_or_sent(hub, tmp_path, monkeypatch):
    for ref in ("hub:somebody/pole", "hub:@main", "hub:somebody/pole@"):
        with pytest.raises(VictimError, match=r"is hub:user/name@revision, such as a commit, .* got 'hub:"):
            adv.load_victim(ref)
    with pytest.raises(CardError, match=r"(?s)cannot read hub:nobody/pole@main: .*Repository Not Found"):
        adv.load_victim("hub:nobody/pole@main")
    with pytest.raises(CardError, match=r"(?s)cannot read hub:somebody/pole@main: .*Entry Not Found"):
        adv.load_victim("hub:somebody/pole@main")
    with pytest.raises(CardError, match=r"cannot read hub:\.\./up@main"):
        adv.load_victim("hub:../up@main")
    with pytest.raises(CardError, match=r"card\.json"):
        adv.push_to_hub(tmp_path, "somebody/pole")
    shutil.copytree(ZOO, hub.folder, dirs_exist_ok=True)
    with pytest.raises(CardError, match=r"bytes, at most 1000 are read \(max_bytes= raises that\)"):
        adv.load_victim("hub:somebody/pole@main", max_bytes=1000)
    assert not list((tmp_path / "cache").rglob("weights.safetensors"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(VictimError, match=r"pip install 'adv_wrappers\[hub\]'"):
        adv.load_victim("hub:somebody/pole@main")
