"""An agent that answers by a script: what each call of a method gets, in order; what it was asked is kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from dormouse._methods import FILES, HOST
from dormouse.status.v1 import status_pb2

# What a call gets: a message, messages, an error, or what a function of request and context returns.
Behaviour = Any


class Refusal(Exception):
    """A status, with the details of the contract unless it is bare."""

    def __init__(
        self,
        status_code: grpc.StatusCode,
        /,
        reason: str = "",
        message: str = "the fake says no",
        *,
        retry_after: float | None = None,
        pushback: str | None = None,
        domain: str = "dormouse.dev",
        request_id: str = "",
        **metadata: str,
    ) -> None:
        super().__init__(reason)
        self.code = status_code
        self.message = message
        self.trailers: list[tuple[str, Any]] = []
        status = status_pb2.Status(code=status_code.value[0], message=message)
        if reason:
            metadata.setdefault("reason", reason.lower())
            info = status_pb2.ErrorInfo(reason=reason, domain=domain, metadata=metadata)
            status.details.append(AnyMessage(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=info.SerializeToString()))
        if retry_after is not None:
            retry = status_pb2.RetryInfo()
            retry.retry_delay.FromMilliseconds(round(retry_after * 1000))
            status.details.append(AnyMessage(type_url="type.googleapis.com/google.rpc.RetryInfo", value=retry.SerializeToString()))
        if request_id:
            made = status_pb2.RequestInfo(request_id=request_id)
            status.details.append(AnyMessage(type_url="type.googleapis.com/google.rpc.RequestInfo", value=made.SerializeToString()))
        if status.details:
            self.trailers.append(("grpc-status-details-bin", status.SerializeToString()))
        if pushback is not None:
            self.trailers.append(("grpc-retry-pushback-ms", pushback))


def unavailable(reason: str = "HOST_OVERLOADED", **more: Any) -> Refusal:
    more.setdefault("retryable", "true")
    return Refusal(grpc.StatusCode.UNAVAILABLE, reason, **more)


BARE_UNAVAILABLE = Refusal(grpc.StatusCode.UNAVAILABLE)
BARE_UNIMPLEMENTED = Refusal(grpc.StatusCode.UNIMPLEMENTED, message="")
NOT_RUNNING = Refusal(
    grpc.StatusCode.FAILED_PRECONDITION,
    "WORKSPACE_NOT_RUNNING",
    code="workspace_not_running",
    retryable="false",
    http_status="409",
    workspace="w",
    state="suspended",
)


class FakeAgent:
    """Serves on loopback until it is closed."""

    def __init__(self) -> None:
        self.script: dict[str, list[Behaviour]] = defaultdict(list)
        self.asked: list[tuple[str, Any]] = []
        self.metadata: list[dict[str, Any]] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.max_receive_message_length", 8 << 20)])
        handlers = {}
        for service, methods in (("dormouse.files.v1.FilesService", FILES), ("dormouse.host.v1.HostService", HOST)):
            handlers = {name: self._handler(name, method) for name, method in methods.items()}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self.endpoint = f"tcp:127.0.0.1:{port}"

    def on(self, method: str, *behaviours: Behaviour) -> None:
        """What the next calls of a method get."""
        self.script[method].extend(behaviours)

    def requests(self, method: str) -> list[Any]:
        """What a method was asked, attempt by attempt."""
        return [request for name, request in self.asked if name == method]

    def close(self) -> None:
        self._server.stop(None).wait()
        left = {name: len(rest) for name, rest in self.script.items() if rest}
        assert not left, f"the script was not played to its end: {left}"

    def _handler(self, name: str, method: Any) -> Any:
        serialize = method.response.SerializeToString
        parse = method.request.FromString
        if name == "Write":
            return grpc.stream_unary_rpc_method_handler(self._taking(name, self._single), parse, serialize)
        if name in ("Read", "List", "Search", "WatchWorkspaces"):
            return grpc.unary_stream_rpc_method_handler(self._taking(name, self._many), parse, serialize)
        return grpc.unary_unary_rpc_method_handler(self._taking(name, self._single), parse, serialize)

    def _taking(self, name: str, answer: Callable[..., Any]) -> Callable[[Any, Any], Any]:
        def handle(request: Any, context: Any) -> Any:
            if isinstance(request, Message):
                self.asked.append((name, request))
            self.metadata.append(dict(context.invocation_metadata()))
            if not self.script[name]:
                context.abort(grpc.StatusCode.INTERNAL, f"the script has nothing for {name}")
            return answer(name, self.script[name].pop(0), request, context)

        return handle

    def _refuse(self, refusal: Refusal, context: Any) -> None:
        context.set_trailing_metadata(tuple(refusal.trailers))
        context.abort(refusal.code, refusal.message)

    def _single(self, name: str, behaviour: Behaviour, request: Any, context: Any) -> Any:
        if not isinstance(request, Message) and not isinstance(behaviour, Refusal):
            request = list(request)
            self.asked.append((name, request))
        elif not isinstance(request, Message):
            self.asked.append((name, [next(request)]))
        if callable(behaviour):
            try:
                behaviour = behaviour(request, context)
            except Refusal as refusal:
                behaviour = refusal
        if isinstance(behaviour, Refusal):
            self._refuse(behaviour, context)
        return behaviour

    def _many(self, name: str, behaviour: Behaviour, request: Any, context: Any) -> Iterator[Any]:
        if callable(behaviour):
            behaviour = behaviour(request, context)
        for item in behaviour if isinstance(behaviour, list) else [behaviour]:
            if isinstance(item, Refusal):
                self._refuse(item, context)
            yield item
