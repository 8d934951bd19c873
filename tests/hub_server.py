"""A small local server that speaks as much of the Hugging Face hub's protocol as a data set needs, and can fail."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


class Hub(ThreadingHTTPServer):
    """One data set on a free port of this machine: what it holds, what was asked of it, how it fails next."""

    def __init__(self, repo: str, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repo, self.files = repo, files
        self.commit = hashlib.sha1(repr((repo, sorted(files.items()))).encode()).hexdigest()
        self.gated = False
        self.requests: list[str] = []
        self.n_bytes_sent = 0  # of the files' contents
        self.busy: list[tuple[int, dict[str, str]]] = []  # (status, headers) that answer the next requests
        self.cuts: list[int] = []  # the next bodies of files break off after so many bytes

    def is_lfs(self, name: str) -> bool:
        return not name.endswith(".md")

    def entries(self) -> list[dict]:
        """What the hub states of each file."""
        entries = []
        for number, (name, data) in enumerate(self.files.items()):
            entry = {"type": "file", "path": name, "size": len(data), "oid": f"{number:040x}"}
            if self.is_lfs(name):
                entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            entries.append(entry)
        return entries

    def handle_error(self, *args: object) -> None:
        """A client may hang up."""


class HubHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer()

    def answer(self) -> None:
        hub = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(urlsplit(self.path).path)
        hub.requests.append(f"{self.command} {path}")
        api, files = f"/api/datasets/{hub.repo}", f"/datasets/{hub.repo}/resolve/"
        if hub.busy:
            self.reply(*hub.busy.pop(0))
        elif path.startswith("/cdn/"):
            self.reply_file(path.removeprefix("/cdn/"))
        elif not path.startswith((f"{api}/", files)) and path != api:
            self.reply(401, {"X-Error-Code": "RepoNotFound"})  # does not exist, or may not be seen
        elif hub.gated:
            self.reply(403, {"X-Error-Code": "GatedRepo"})
        elif path.startswith(f"{api}/revision/") and path.removeprefix(f"{api}/revision/") not in ("main", hub.commit):
            self.reply(404, {"X-Error-Code": "RevisionNotFound"})
        elif path.startswith(f"{api}/revision/") or path == api:
            siblings = [{"rfilename": name} for name in hub.files]
            self.reply_json({"id": hub.repo, "sha": hub.commit, "siblings": siblings, "private": False})
        elif path.startswith(f"{api}/tree/"):
            folder = path.removeprefix(f"{api}/tree/").partition("/")[2]
            recursive = parse_qs(urlsplit(self.path).query).get("recursive", [""])[0].lower() in ("1", "true")
            self.reply_json(hub.entries() if recursive else self.children(folder))
        elif path.startswith(f"{api}/paths-info/"):
            asked = self.asked_paths(body)
            self.reply_json([entry for entry in hub.entries() if entry["path"] in asked])
        elif path.startswith(files):
            name = path.removeprefix(files).partition("/")[2]
            if name in hub.files and hub.is_lfs(name):  # large files come from elsewhere
                self.reply(302, {"Location": f"{hub.url}/cdn/{name}"})
            else:
                self.reply_file(name)
        else:
            self.reply(404, {"X-Error-Code": "EntryNotFound"})

    def children(self, folder: str) -> list[dict]:
        """The files right in `folder`, then the folders; the root is ''."""
        prefix = f"{folder}/" if folder else ""
        inside = [entry for entry in self.server.entries() if entry["path"].startswith(prefix)]
        files = [entry for entry in inside if "/" not in entry["path"].removeprefix(prefix)]
        below = {entry["path"].removeprefix(prefix).partition("/")[0] for entry in inside if entry not in files}
        return files + [{"type": "directory", "path": prefix + name, "oid": "0" * 40} for name in sorted(below)]

    def asked_paths(self, body: bytes) -> list[str]:
        if "json" in self.headers.get("Content-Type", ""):
            return json.loads(body)["paths"]
        return parse_qs(body.decode())["paths"]

    def reply_file(self, name: str) -> None:
        data = self.server.files.get(name)
        if data is None:
            self.reply(404, {"X-Error-Code": "EntryNotFound"})
            return
        headers = {"ETag": f'"{name}"', "X-Repo-Commit": self.server.commit, "Accept-Ranges": "bytes"}
        status, wanted = 200, self.headers.get("Range")
        if wanted is not None:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            part = data[int(first) : int(last) + 1 if last else None]
            headers["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
            status, data = 206, part
        cut = self.server.cuts.pop(0) if self.server.cuts and self.command == "GET" else None
        self.server.n_bytes_sent += len(data[:cut])
        self.reply(status, headers, data, cut)

    def reply_json(self, value: object) -> None:
        self.reply(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def reply(
        self, status: int, headers: dict[str, str] | None = None, data: bytes = b"", cut: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[:cut])
        self.close_connection = cut is not None

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(repo: str, files: dict[str, bytes]) -> Iterator[Hub]:
    """Serve `files` as the data set `repo`."""
    hub = Hub(repo, files)
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
