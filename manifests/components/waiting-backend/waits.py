"""The lab's pages from a backend that sleeps WAIT_US microseconds before each answer: a latency that is known and costs no CPU.

A thread for each connection, so that no answer waits for another's sleep. GET only, as the lab's loads are.
"""

import ctypes
import os
import signal
import socket
import threading
import time
from pathlib import Path

PORT = 8080
WAIT_US = int(os.environ["WAIT_US"])
PR_SET_TIMERSLACK = 29
PAGES = {f"/{path.name}": path.read_bytes() for path in Path("/srv/pages").iterdir() if path.is_file()}
OWN = {"/healthz": b"ok\n", "/waits": f"wait_us {WAIT_US}\n".encode()}


def answer(request: bytes) -> bytes:
    path = request.split(b" ", 2)[1].split(b"?")[0].decode()
    body = OWN.get(path, PAGES.get(path))
    status, body = ("200 OK", body) if body is not None else ("404 Not Found", b"no such page\n")
    if path not in OWN and WAIT_US:
        time.sleep(WAIT_US / 1e6)
    kind = "text/plain" if path in OWN else "application/octet-stream"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nX-Lab-Backend: {HOST}\r\n\r\n"
    return head.encode() + body


def serve(connection: socket.socket) -> None:
    held = b""
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(65536):
            held += data
            while b"\r\n\r\n" in held:
                request, _, held = held.partition(b"\r\n\r\n")
                try:
                    connection.sendall(answer(request))
                except OSError:
                    return
                if b"\r\nconnection: close" in request.lower():
                    return


HOST = socket.gethostname()
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
# A sleeper is woken up to 50 µs late where the kernel may choose: a sixth of 0.3 ms. Threads inherit it.
ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)
with socket.create_server(("", PORT), backlog=4096) as listener:
    while True:
        accepted, _ = listener.accept()
        threading.Thread(target=serve, args=(accepted,), daemon=True).start()
