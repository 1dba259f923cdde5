"""Several machines: how their agents find each other, and how the failure of one becomes the failure of all.

Machine 0's agent serves a store, the ranks' too. Where it is, the others know from ``dist_url`` or from Slurm.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import torch.distributed as dist

from . import messages, places, rendezvous
from .options import PATIENCE, Options

WATCH_PERIOD = 0.5  # seconds
FAREWELL = (
    5.0  # seconds that machine 0 goes on serving the store after a failure, for the others to read of it
)


@dataclass(frozen=True)
class Failure:
    """Why a machine's ranks have ended."""

    machine: int
    code: int
    text: str


def meet(options: Options, timeout: timedelta = PATIENCE) -> Link:
    """Serve the store or find it, and wait until the agents of all machines are there.

    Raises:
        ValueError: ``dist_url``, ``num_machines`` or ``machine_rank`` makes no sense, alone or beside those of others.
        RuntimeError: a machine did not come in time, or the port is taken.
    """
    file = _file(options) if (options.dist_url or "").startswith("file://") else None
    host, port = _from_file(file, options, timeout) if file else _address(options)
    store = rendezvous.open_store(host, port, serve=options.machine_rank == 0, timeout=timeout)
    if file and options.machine_rank == 0:
        file.set("address", json.dumps([host, store.port]))
    del file  # the last machine to let go of it removes it
    link = Link(options, host, store)
    link.check_in(timeout)
    return link


class Link:
    """One agent's connection to the others."""

    def __init__(self, options: Options, host: str, store: dist.TCPStore) -> None:
        self.host, self.port = host, store.port
        self.run_id = ""
        self.failure: Failure | None = None  # of another machine
        self._machine, self._count = options.machine_rank, options.num_machines
        self._store = dist.PrefixStore(
            "dp2ddp/machines", store
        )  # machine 0 serves it as long as this object lives
        self._done = threading.Event()

    def check_in(self, timeout: timedelta) -> None:
        """Wait for the other machines, and agree on a name of the job."""
        count = self._store.compare_set("count", "", str(self._count)).decode()
        if count != str(self._count):
            raise ValueError(
                f"num_machines={self._count} on this machine, but {count} on another: use the same number on "
                "all"
            )
        if self._store.add(f"came/{self._machine}", 1) > 1:
            raise ValueError(f"machine_rank={self._machine} is used by two machines: give each its own")
        self.run_id = self._store.compare_set("run", "", str(uuid.uuid4())).decode()
        keys = [f"came/{machine}" for machine in range(self._count)]
        end = time.monotonic() + timeout.total_seconds()
        hint = time.monotonic() + rendezvous.HINT
        while not self._store.check(keys):
            now = time.monotonic()
            if now > min(hint, end):
                late = [machine for machine, key in enumerate(keys) if not self._store.check([key])]
                who = f"{messages.listing('machine', late)} of {self._count}, at {self.host}:{self.port}"
                if now > end:
                    raise RuntimeError(
                        f"no answer after {timeout.total_seconds():g} s from {who}: start the script there, too"
                    )
                messages.say(f"waiting for {who}")
                hint = end
            time.sleep(0.1)

    def watch(self) -> None:
        """From now on, a failure of another machine stops this process as SIGTERM does, and is in ``failure``."""
        if self._count > 1:
            threading.Thread(target=self._watch, name="dp2ddp-machines", daemon=True).start()

    def _watch(self) -> None:
        while not self._done.wait(WATCH_PERIOD):
            try:
                found = self._read()
            except RuntimeError:
                found = Failure(0, 1, "lost the connection to machine 0, which holds the job's store")
            if found is not None:
                if found.machine != self._machine and not self._done.is_set():
                    self.failure = found
                    os.kill(os.getpid(), signal.SIGTERM)
                return

    def _read(self) -> Failure | None:
        if not self._store.check(["failure"]):
            return None
        return Failure(**json.loads(self._store.get("failure")))

    def leave(self, failure: Failure | None) -> Failure | None:
        """Say that this machine's ranks have ended, and how.

        Returns:
            The job's first failure, this machine's or another's.
        """
        self._done.set()
        failure = self.failure or failure
        with suppress(RuntimeError):  # the store is gone with machine 0
            if failure is not None:
                known = self._store.compare_set("failure", "", json.dumps(vars(failure)))
                failure = Failure(**json.loads(known))
            self._store.add("left", 1)
            end = time.monotonic() + FAREWELL
            while self._machine == 0 and self._store.add("left", 0) < self._count and time.monotonic() < end:
                time.sleep(0.05)
        return failure


def _address(options: Options) -> tuple[str, int]:
    """Where machine 0 serves the store: host and port; port 0 is any free one of this machine."""
    url = options.dist_url
    if url is None and options.num_machines > 1 and places.meeting_point(os.environ)[0]:
        url = "env://"
    if url in (None, "auto"):
        if options.num_machines > 1:
            raise ValueError(f"num_machines={options.num_machines} needs a dist_url: {_FORMS}")
        return "127.0.0.1", 0
    if url == "env://":
        host, port = places.meeting_point(os.environ)
        return _endpoint(f"tcp://{host}:{port}", f"MASTER_ADDR={host!r} and MASTER_PORT={port!r} for env://")
    return _endpoint(url, f"dist_url={url!r}")


_FORMS = (
    "tcp://<host of machine 0>:<free port>, env:// with MASTER_ADDR and MASTER_PORT, or "
    "file:///<new file in a folder that all machines see>"
)


def _endpoint(url: str, said: str) -> tuple[str, int]:
    """Host and port of a tcp:// address.

    Args:
        said: where the address is from, for messages.
    """
    try:
        parts = urlsplit(url)
        host, port = (
            (parts.hostname, parts.port) if parts.scheme == "tcp" and not parts.path.strip("/") else ("", 0)
        )
    except ValueError:
        host, port = "", 0
    if not host or not port:
        raise ValueError(f"{said} is not an address: use {_FORMS}")
    try:
        socket.getaddrinfo(host, port)
    except OSError:
        raise ValueError(f"{said}: the host name {host!r} can't be resolved on this machine") from None
    return host, port


def _file(options: Options) -> dist.FileStore:
    """torch's store in the file of a file:// address."""
    parts = urlsplit(options.dist_url)
    path = Path(parts.path)
    if parts.netloc or not path.name or not path.parent.is_dir():
        raise ValueError(f"dist_url={options.dist_url!r} is not a file in an existing folder: use {_FORMS}")
    return dist.FileStore(str(path), options.num_machines)


def _from_file(file: dist.FileStore, options: Options, timeout: timedelta) -> tuple[str, int]:
    """What machine 0 has written into a file, or will write: its name and any free port."""
    if options.machine_rank == 0:
        if file.check(["address"]):
            raise ValueError(
                f"dist_url={options.dist_url!r}: the file is from an earlier job; remove it or use another"
            )
        return places.meeting_point(os.environ)[0] or socket.gethostname(), 0
    file.set_timeout(timeout)
    try:
        host, port = json.loads(file.get("address"))
    except RuntimeError:
        raise RuntimeError(
            f"no answer after {timeout.total_seconds():g} s from machine 0 at {options.dist_url}: start the script "
            "there, too"
        ) from None
    return host, port
