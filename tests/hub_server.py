"""A small local server that speaks as much of the Hugging Face hub's protocol as a data set needs."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubHandler(BaseHTTPRequestHandler):
    """Serves `server.files` of the one data set `server.repo` and notes what was asked for."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer()

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append(f"{self.command} {path}")
        api, files = f"/api/datasets/{self.server.repo}", f"/datasets/{self.server.repo}/resolve/"
        if path.startswith(f"{api}/revision/") or path == api:
            siblings = [{"rfilename": name} for name in self.server.files]
            self.reply_json({"id": self.server.repo, "sha": COMMIT, "siblings": siblings, "private": False})
        elif path.startswith(f"{api}/tree/"):
            self.reply_json(self.children(path.removeprefix(f"{api}/tree/").partition("/")[2]))
        elif path.startswith(f"{api}/paths-info/"):
            asked = self.asked_paths(body)
            self.reply_json([entry for entry in self.entries() if entry["path"] in asked])
        elif path.startswith(files):
            self.reply_file(path.removeprefix(files).partition("/")[2])
        else:
            self.reply(404, b"", {"X-Error-Code": "EntryNotFound"})

    def entries(self) -> list[dict]:
        return [
            {"type": "file", "path": name, "size": len(data), "oid": f"{number:040x}"}
            for number, (name, data) in enumerate(self.server.files.items())
        ]

    def children(self, folder: str) -> list[dict]:
        """The files right in `folder`, then the folders; the root is ''."""
        prefix = f"{folder}/" if folder else ""
        inside = [entry for entry in self.entries() if entry["path"].startswith(prefix)]
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
            self.reply(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        headers = {"ETag": f'"{name}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        wanted = self.headers.get("Range")
        if wanted is None:
            self.reply(200, data, headers)
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        part = data[int(first) : int(last) + 1 if last else None]
        headers["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
        self.reply(206, part, headers)

    def reply_json(self, value: object) -> None:
        self.reply(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def reply(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(repo: str, files: dict[str, bytes]) -> Iterator[ThreadingHTTPServer]:
    """Serve `files` as the data set `repo` on a free port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), HubHandler)
    server.repo, server.files, server.requests = repo, files, []
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
