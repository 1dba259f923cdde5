"""Batches from loader workers to all ranks of one machine: shared memory is handed on, not copied.

A worker has a connection to each rank: a Unix socket, through which go a pickled batch without its tensors' memory, and
the descriptors of that memory. Every rank maps it as its own, copied on write: what a loop does to a batch in place
stays in its rank. Nothing has a name in the file system, so nothing is left behind, however a process ends.

A worker's batches reach its own rank last. So that rank may end its workers once it has what it needs, and the others
have it, too.
"""

from __future__ import annotations

import array
import errno
import io
import mmap
import os
import pickle
import queue
import select
import socket
import struct
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data._utils.worker import _IterableDatasetStopIteration, _ResumeIteration

from . import ranks

IS_POSSIBLE = sys.platform == "linux" and hasattr(socket, "SOCK_SEQPACKET") and hasattr(os, "memfd_create")

_INLINE = 8192  # bytes of a pickled batch that go through the socket; more goes through memory
_DESCRIPTORS = 200  # in one packet; Linux takes 253
_PERIOD = 0.2  # seconds after which a worker that can't send looks whether anybody still wants its batches
_RESUMED = -1  # the task of a worker which says that a new epoch may begin
_HEADER = struct.Struct("<BIIqI")  # kind of packet, then a _Key and the digest of the indices
_MORE, _HERE, _IN_MEMORY = range(
    3
)  # kinds: descriptors alone; the batch; the batch in memory, the last descriptor
_CREDENTIALS = struct.Struct("iII")  # process, user, group

_arriving = threading.local()


class _Key(NamedTuple):
    """Which batch it is: of which epoch of an iterator, by which worker, and its number among all workers' batches."""

    epoch: int
    worker: int
    task: int


class Task(int):
    """The number of a batch, as it goes to a worker and comes back; ``digest`` is that of the samples' indices."""

    digest: int

    def __new__(cls, number: int, digest: int) -> Task:
        task = super().__new__(cls, number)
        task.digest = digest
        return task

    def __reduce__(self) -> Any:
        return Task, (int(self), self.digest)


def digest(index: Any) -> int:
    """A digest of a batch's indices by which ranks notice that they draw others; 0 for what is no integers."""
    try:
        numbers = [index] if isinstance(index, int) else index
        return zlib.crc32(array.array("q", numbers).tobytes()) or 1
    except (TypeError, OverflowError, ValueError):
        return 0


# Pickled batches


class _Pickler(ForkingPickler):
    """Pickles as multiprocessing does, but the memory of tensors, which it collects as descriptors."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.descriptors: dict[int, int] = {}  # and their places; whose storages own them

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.UntypedStorage) and obj.device.type == "cpu" and obj.nbytes():
            descriptor, size = obj._share_fd_cpu_()
            return _mapped, (self.descriptors.setdefault(descriptor, len(self.descriptors)), size)
        if isinstance(obj, torch.Tensor) and obj.device.type == "cuda":  # of one rank's GPU
            return _to_own_device, (obj.detach().cpu(), obj.requires_grad)
        return NotImplemented


def _to_own_device(tensor: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    return tensor.to(ranks.device()).requires_grad_(requires_grad)


def _mapped(place: int, size: int) -> torch.UntypedStorage:
    """The memory of a descriptor that has just arrived; what is written there stays in this process."""
    found = _arriving.mapped.get(place)
    if found is None:
        more = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        memory = mmap.mmap(_arriving.descriptors[place], size, access=mmap.ACCESS_COPY, **more)
        found = _arriving.mapped[place] = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    return found


def _pickled(item: Any) -> tuple[memoryview, list[int]]:
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(item)
    return file.getbuffer(), list(pickler.descriptors)


def _sendable(task: Any, data: Any, worker: int) -> tuple[memoryview, list[int]]:
    """What a worker has made of a task, pickled; or why that can't be."""
    try:
        return _pickled((task, data))
    except Exception as error:
        where = f"in DataLoader worker process {worker}"
        try:
            return _pickled((task, ExceptionWrapper(where=where)))
        except Exception:
            told = RuntimeError(f"{type(error).__name__}: {error}")
            return _pickled((task, ExceptionWrapper((RuntimeError, told, error.__traceback__), where)))


@dataclass
class _Message:
    """A batch as it has come, still pickled."""

    data: bytes
    descriptors: list[int]
    digest: int
    in_memory: bool

    def open(self) -> Any:
        """The batch; the descriptors are closed."""
        try:
            _arriving.descriptors, _arriving.mapped = self.descriptors, {}
            if not self.in_memory:
                return pickle.loads(self.data)
            with mmap.mmap(self.descriptors[-1], 0, access=mmap.ACCESS_READ) as memory:
                return pickle.loads(memory)
        finally:
            _arriving.descriptors, _arriving.mapped = [], {}
            self.drop()

    def drop(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []


# In a worker


class Outlet:
    """What a worker puts its batches into; it can be pickled.

    Args:
        worker: its number.
        names: of the ranks' lanes, its own rank's at the end.
        done: set when its own rank needs no more.
    """

    def __init__(self, worker: int, names: Sequence[str], done: Any) -> None:
        self._worker, self._names, self._done = worker, names, done
        self._connections: dict[str, socket.socket | None] = {}  # None: the rank wants no more
        self._epoch = 0
        self._parent: int | None = None

    def put(self, item: tuple[Any, Any]) -> None:
        """Send what the worker has made of a task to all ranks."""
        self._parent = self._parent or os.getppid()
        task, data = item
        resumes = isinstance(task, _ResumeIteration)
        self._epoch += resumes
        number, known = (_RESUMED, 0) if resumes else (int(task), getattr(task, "digest", 0))
        payload, descriptors = _sendable(task if resumes else number, data, self._worker)
        memory, kind = None, _HERE
        if len(payload) > _INLINE:
            memory = os.memfd_create("dp2ddp", os.MFD_CLOEXEC)
            with open(memory, "wb", closefd=False) as file:
                file.write(payload)
            descriptors, payload, kind = [*descriptors, memory], memoryview(b""), _IN_MEMORY
        key = (self._epoch, self._worker, number, known)
        packets = []
        while len(descriptors) > _DESCRIPTORS:
            packets.append((_HEADER.pack(_MORE, *key), descriptors[:_DESCRIPTORS]))
            descriptors = descriptors[_DESCRIPTORS:]
        packets.append((_HEADER.pack(kind, *key) + payload, descriptors))
        try:
            for name in self._names:
                self._send(name, packets)
        finally:
            if memory is not None:
                os.close(memory)

    def _send(self, name: str, packets: list[tuple[bytes, list[int]]]) -> None:
        if name not in self._connections:
            self._connections[name] = self._connect(name)
        connection = self._connections[name]
        for data, descriptors in packets:
            if connection is None:
                return
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            if not self._sent(connection, data, rights if descriptors else []):
                connection.close()
                connection = self._connections[name] = None

    def _sent(self, connection: socket.socket, data: bytes, rights: list[Any]) -> bool:
        """Send a packet, however long that takes; False if nobody wants it any more."""
        while True:
            try:
                connection.sendmsg([data], rights)
                return True
            except TimeoutError:
                pass
            except OSError as error:
                # too many descriptors are on their way, for this user
                if error.errno not in (errno.ETOOMANYREFS, errno.ENOBUFS, errno.EAGAIN):
                    return False
                time.sleep(0.005)
            if self._is_over():
                return False

    def _connect(self, name: str) -> socket.socket | None:
        """Wait for a rank to make its iterator, too."""
        pause = 0.001
        while not self._is_over():
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            connection.settimeout(_PERIOD)
            try:
                connection.connect(name)
                return connection
            except OSError:
                connection.close()
            time.sleep(pause)
            pause = min(1.5 * pause, 0.05)
        return None

    def _is_over(self) -> bool:
        return self._done.is_set() or os.getppid() != self._parent

    def cancel_join_thread(self) -> None:
        """What a queue of multiprocessing has."""

    def close(self) -> None:
        for connection in self._connections.values():
            if connection is not None:
                connection.close()
        self._connections = dict.fromkeys(self._connections)


# In a rank


@dataclass
class _Connection:
    """A worker's."""

    socket: socket.socket
    worker: int | None = None
    descriptors: list[int] = field(default_factory=list)  # of a batch that has not come wholly


class Lane:
    """Where a rank gets one iterator's batches, in order, whichever rank's workers load them.

    A queue for torch's iterator, and for its thread that pins memory.

    Args:
        name: by which workers find it.
    """

    def __init__(self, name: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(name)
        self._listener.listen(4096)
        self._listener.setblocking(False)
        self._bell, self._button = socket.socketpair()
        self._bell.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(self._bell, select.POLLIN)
        self._connections: dict[int, _Connection] = {}
        self._lock = threading.Lock()
        self._getting: int | None = None  # the thread that gets
        self._epoch = 0
        self._tasks: deque[tuple[_Key, int]] = deque()  # whose batches are still to come, and their digests
        self._ended: set[int] = set()  # workers that have no more in this epoch
        self._arrived: dict[_Key, _Message] = {}
        self._put: deque[Any] = deque()
        self._is_open = True
        self._gone: set[int] = set()  # workers that have ended
        self.lost: int | None = None  # the one of them whose batch is needed

    def given(self, worker: int, task: Task) -> None:
        """Note that a worker has been given a task, here or on its own rank."""
        with self._lock:
            self._tasks.append((_Key(self._epoch, worker, int(task)), task.digest))
        self._ring()

    def resumed(self, worker: int) -> None:
        """Note that a worker has been told to begin a new epoch, each one in turn."""
        with self._lock:
            if worker == 0:
                self._epoch += 1
                self._tasks.clear()
                self._ended.clear()
                for key in [key for key in self._arrived if key.epoch < self._epoch]:
                    self._arrived.pop(key).drop()
            self._tasks.append((_Key(self._epoch, worker, _RESUMED), 0))
        self._ring()

    def put(self, item: Any) -> None:
        """Have ``get`` return something before all that comes."""
        self._put.append(item)
        self._ring()

    def _ring(self) -> None:
        if self._getting not in (None, threading.get_ident()):
            with suppress(OSError):
                self._button.send(b"!")

    def get(self, timeout: float | None = None) -> Any:
        """The next task's number and batch.

        Raises:
            queue.Empty: it has not come in time, or never will.
        """
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        while True:
            with self._lock:
                self._getting = threading.get_ident()
                if self._put:
                    return self._put.popleft()
                key, known = self._next()
                message = None if key is None else self._arrived.pop(key, None)
                if message is not None:
                    self._tasks.popleft()
            if message is not None:
                return self._opened(key, known, message)
            left = end - time.monotonic()
            if left <= 0 or not self._is_open:
                raise queue.Empty
            if key is not None and key.worker in self._gone:
                self.lost = key.worker
                time.sleep(0.01)
                raise queue.Empty
            self._receive(left)

    def wanted(self) -> int | None:
        """The worker whose batch is next, if it has been given any."""
        with self._lock:
            key, _ = self._next()
            return None if key is None else key.worker

    def _next(self) -> tuple[_Key | None, int]:
        """The task whose batch is next: a worker whose data set has ended does none any more."""
        while self._tasks:
            key, known = self._tasks[0]
            if key.worker not in self._ended:
                return key, known
            self._tasks.popleft()
        return None, 0

    def _opened(self, key: _Key, known: int, message: _Message) -> Any:
        task, data = message.open()
        if isinstance(data, _IterableDatasetStopIteration):
            self._ended.add(key.worker)
        if known and message.digest and known != message.digest:
            error = RuntimeError(
                "ranks draw different samples from a loader passed to share(): its sampler uses random "
                "numbers that differ across ranks, or control flow differed before; seed it equally on all "
                "ranks"
            )
            return task, ExceptionWrapper((RuntimeError, error, None), "in a shared loader")
        return task, data

    # What comes

    def _receive(self, seconds: float) -> None:
        """Wait for packets and take them."""
        limit = None if seconds == float("inf") else max(1, int(1000 * seconds))
        for descriptor, _ in self._poll.poll(limit):
            if descriptor == self._listener.fileno():
                self._accept()
            elif descriptor == self._bell.fileno():
                with suppress(OSError):
                    self._bell.recv(4096)
            else:
                self._read(self._connections[descriptor])

    def _accept(self) -> None:
        with suppress(OSError):
            found, _ = self._listener.accept()
            told = found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            if _CREDENTIALS.unpack(told)[1] != os.getuid():
                found.close()
                return
            self._connections[found.fileno()] = _Connection(found)
            self._poll.register(found, select.POLLIN)

    def _read(self, connection: _Connection) -> None:
        room = socket.CMSG_SPACE(4 * (_DESCRIPTORS + 1))
        try:
            data, told, flags, _ = connection.socket.recvmsg(
                _HEADER.size + _INLINE, room, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except ConnectionError:
            data, told, flags = b"", [], 0
        for level, kind, found in told:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors = array.array("i")
                descriptors.frombytes(found[: len(found) - len(found) % descriptors.itemsize])
                connection.descriptors += descriptors
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if not data:
            self._drop(connection)
            return
        kind, epoch, worker, task, known = _HEADER.unpack_from(data)
        connection.worker = worker
        if kind == _MORE:
            return
        message = _Message(data[_HEADER.size :], connection.descriptors, known, kind == _IN_MEMORY)
        connection.descriptors = []
        with self._lock:
            if epoch < self._epoch or not self._is_open:
                message.drop()
            else:
                self._arrived[_Key(epoch, worker, task)] = message

    def _drop(self, connection: _Connection) -> None:
        self._poll.unregister(connection.socket)
        del self._connections[connection.socket.fileno()]
        connection.socket.close()
        for descriptor in connection.descriptors:
            os.close(descriptor)
        if connection.worker is not None:
            self._gone.add(connection.worker)

    def cancel_join_thread(self) -> None:
        """What a queue of multiprocessing has."""

    def close(self) -> None:
        """Take nothing any more."""
        with self._lock:
            if not self._is_open:
                return
            self._is_open = False
            for message in self._arrived.values():
                message.drop()
            self._arrived.clear()
        self._poll = select.poll()
        # forked workers have them, too: closing alone would leave them open
        for open_ in (self._listener, *(connection.socket for connection in self._connections.values())):
            with suppress(OSError):
                open_.shutdown(socket.SHUT_RDWR)
            open_.close()
        for connection in self._connections.values():
            for descriptor in connection.descriptors:
                os.close(descriptor)
        self._connections.clear()
        self._bell.close()
        self._button.close()
