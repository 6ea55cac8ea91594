"""A worker for BuildGrid, against the Bots interface of the Remote Workers API. It runs under
BuildGrid's own Python, whose messages it uses:

    python reapi_bot.py PORT NAME DIRECTORY [WRITE_FAULT]

It takes one action at a time, executes it in a directory of its own with nothing but the
environment that the action names, and uploads the outputs. WRITE_FAULT is a status that it reports
in place of uploading outputs, such as 8 for RESOURCE_EXHAUSTED.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grpc
from buildgrid._protos.build.bazel.remote.execution.v2 import remote_execution_pb2 as re_pb2
from buildgrid._protos.build.bazel.remote.execution.v2 import remote_execution_pb2_grpc as re_grpc
from buildgrid._protos.google.bytestream import bytestream_pb2, bytestream_pb2_grpc
from buildgrid._protos.google.devtools.remoteworkers.v1test2 import bots_pb2, bots_pb2_grpc

PENDING, ACTIVE, COMPLETED, CANCELLED = 1, 2, 4, 5
UPDATE = 1.0  # seconds between two words to the server while an action runs
CHUNK = 1 << 20


class Bot:
    def __init__(self, port: str, name: str, directory: Path, fault: int) -> None:
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.bots = bots_pb2_grpc.BotsStub(channel)
        self.cas = re_grpc.ContentAddressableStorageStub(channel)
        self.bytes = bytestream_pb2_grpc.ByteStreamStub(channel)
        self.name, self.directory, self.fault = name, directory, fault

    def run(self) -> None:
        """Serve, in a new session whenever the server has given one up. It does that if the machine
        is so busy that this worker could not say a word for some seconds."""
        while True:
            try:
                self.serve()
            except grpc.RpcError as e:
                print(f"again: {e.code()}", flush=True)
                time.sleep(1)  # the server is busy, and does not tell when it no longer is

    def serve(self) -> None:
        session = bots_pb2.BotSession(bot_id=self.name, status=bots_pb2.OK)
        session.worker.devices.add(handle=self.name)
        session = self.bots.CreateBotSession(bots_pb2.CreateBotSessionRequest(bot_session=session), timeout=30)
        print("ready", flush=True)
        while True:
            for lease in session.leases:
                if lease.state == PENDING:
                    lease.state = ACTIVE
                    session = self.update(session)
                    self.work(session)
            del session.leases[:]
            session = self.update(session)

    def update(self, session: Any) -> Any:
        request = bots_pb2.UpdateBotSessionRequest(name=session.name, bot_session=session)
        return self.bots.UpdateBotSession(request, timeout=30)

    def work(self, session: Any) -> None:
        (lease,) = session.leases
        action = re_pb2.Action()
        lease.payload.Unpack(action)
        place = self.directory / hashlib.sha256(lease.id.encode()).hexdigest()[:12]
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        command = re_pb2.Command.FromString(self.read(action.command_digest))
        self.lay_out(action.input_root_digest, place)
        for path in command.output_paths:
            (place / path).parent.mkdir(parents=True, exist_ok=True)
        env = {v.name: v.value for v in command.environment_variables}
        out, err = place / ".stdout", place / ".stderr"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            # `env` turns a program that cannot be started into a status.
            process = subprocess.Popen(
                ["/usr/bin/env", *command.arguments],
                cwd=place, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                start_new_session=True,
            )  # fmt: skip
            print(f"begin {process.pid}", flush=True)
            next_word = time.monotonic() + UPDATE
            while process.poll() is None:
                time.sleep(0.02)  # it has two things to look after, and no test waits here
                if time.monotonic() > next_word:
                    session = self.update(session)
                    next_word = time.monotonic() + UPDATE
                    if not session.leases or session.leases[0].state == CANCELLED:
                        os.killpg(process.pid, 9)
                        process.wait()
                        print("cancelled", flush=True)
                        return
        result = re_pb2.ActionResult(exit_code=process.returncode, stdout_raw=out.read_bytes())
        result.stderr_raw = err.read_bytes()
        result.execution_metadata.worker = self.name
        if not self.fault:
            for path in command.output_paths:
                file = place / path
                if file.is_file():
                    result.output_files.add(
                        path=path, digest=self.write(file.read_bytes()), is_executable=os.access(file, os.X_OK)
                    )
        (lease,) = session.leases
        lease.state = COMPLETED
        lease.status.code = self.fault
        lease.status.message = "outputs could not be uploaded" if self.fault else ""
        lease.result.Pack(result)
        session.leases[0].CopyFrom(lease)
        self.update(session)
        print(f"end {process.returncode}", flush=True)
        shutil.rmtree(place, ignore_errors=True)

    def lay_out(self, digest: Any, place: Path) -> None:
        place.mkdir(exist_ok=True)
        directory = re_pb2.Directory.FromString(self.read(digest))
        for file in directory.files:
            path = place / file.name
            path.write_bytes(self.read(file.digest))
            path.chmod(0o755 if file.is_executable else 0o644)
        for link in directory.symlinks:
            (place / link.name).symlink_to(link.target)
        for below in directory.directories:
            self.lay_out(below.digest, place / below.name)

    def read(self, digest: Any) -> bytes:
        request = bytestream_pb2.ReadRequest(resource_name=f"blobs/{digest.hash}/{digest.size_bytes}")
        return b"".join(response.data for response in self.bytes.Read(request)) if digest.size_bytes else b""

    def write(self, data: bytes) -> Any:
        digest = re_pb2.Digest(hash=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        name = f"uploads/{os.urandom(16).hex()}/blobs/{digest.hash}/{digest.size_bytes}"

        def parts() -> Any:
            for at in range(0, max(1, len(data)), CHUNK):
                part = data[at : at + CHUNK]
                yield bytestream_pb2.WriteRequest(
                    resource_name=name, write_offset=at, data=part, finish_write=at + len(part) == len(data)
                )

        self.bytes.Write(parts())
        return digest


if __name__ == "__main__":
    port, name, directory, *rest = sys.argv[1:]
    Bot(port, name, Path(directory), int(rest[0]) if rest else 0).run()
