// The retry table, row by row, without any I/O; and the sums and schemas that need no host either.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { Code } from "@connectrpc/connect";
import { extend } from "../src/crc32c.js";
import { ErrorReason, FilesService } from "../src/gen/dormouse/files/v1/files_pb.js";
import { HostService } from "../src/gen/dormouse/host/v1/host_pb.js";
import { ErrorInfoSchema, RetryInfoSchema } from "../src/gen/google/rpc/error_details_pb.js";
import { create, toBinary } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { effect, feature } from "../src/methods.js";
import { type Attempt, decide, DEFAULT_POLICY, type Step } from "../src/retry.js";
import { BY_REASON, errorOf } from "../src/status.js";
import { DEFINITIONS } from "../src/tool_definitions.js";
import * as e from "../src/index.js";

const PATCH = FilesService.method.patch;

/** A status as it comes off the wire. */
function wired(code: Code, reason = "", metadata: Record<string, string> = {}, retryAfterMs?: number): ConnectError {
  const error = new ConnectError("no", code, { "grpc-status": String(code) });
  if (reason !== "") {
    const info = create(ErrorInfoSchema, { reason, domain: "dormouse.dev", metadata });
    error.details.push({ type: "google.rpc.ErrorInfo", value: toBinary(ErrorInfoSchema, info) });
  }
  if (retryAfterMs !== undefined) {
    const retryDelay = { seconds: 0n, nanos: 0 };
    retryDelay.seconds = BigInt(Math.floor(retryAfterMs / 1000));
    retryDelay.nanos = (retryAfterMs % 1000) * 1e6;
    error.details.push({ type: "google.rpc.RetryInfo", value: toBinary(RetryInfoSchema, create(RetryInfoSchema, { retryDelay })) });
  }
  return error;
}

function told(code: Code, reason = "", retryAfterMs?: number): e.DormouseError {
  return errorOf(PATCH, wired(code, reason, {}, retryAfterMs));
}

function first(changes: Partial<Attempt> = {}): Attempt {
  return { failed: 1, elapsedMs: 0, remainingMs: undefined, canWake: true, random: 0.5, ...changes };
}

function check(error: e.DormouseError, attempt: Attempt, expect: Step): void {
  for (const of of ["safe", "idempotent"] as const) {
    const step = decide(DEFAULT_POLICY, of, error, attempt);
    // Jitter is a product of fractions.
    const rounded = typeof step === "object" ? { again: Math.round(step.again) } : step;
    assert.deepEqual(rounded, expect, JSON.stringify(attempt));
  }
  assert.equal(decide(DEFAULT_POLICY, "unknown", error, attempt), "stop");
}

test("unavailable backs off by doubling and at most five attempts", () => {
  const down = told(Code.Unavailable);
  for (const [failed, again] of [[1, 100], [2, 200], [3, 400], [4, 800]] as const) check(down, first({ failed }), { again });
  check(down, first({ failed: 5 }), "stop");
  for (const reason of ["GUEST_UNREACHABLE", "HOST_OVERLOADED", "HOST_DRAINING"]) {
    check(told(Code.Unavailable, reason), first(), { again: 100 });
  }
  check(down, first({ random: 0 }), { again: 80 });
  check(down, first({ random: 1 }), { again: 120 });
});

test("the host's wish wins over the back-off", () => {
  check(told(Code.Unavailable, "HOST_OVERLOADED", 1700), first({ failed: 3 }), { again: 1700 });
  check(told(Code.Unavailable, "HOST_OVERLOADED", 1700), first({ failed: 5 }), "stop");
  check(told(Code.Aborted, "BUSY_WRITER", 50), first(), { again: 50 });
});

test("the caller's deadline ends it", () => {
  const down = told(Code.Unavailable);
  check(down, first({ remainingMs: 101 }), { again: 100 });
  check(down, first({ remainingMs: 100 }), "stop");
  check(told(Code.FailedPrecondition, "WORKSPACE_NOT_RUNNING"), first({ remainingMs: 0 }), "stop");
  check(told(Code.DeadlineExceeded), first({ remainingMs: 5000 }), { again: 100 });
  check(told(Code.DeadlineExceeded), first({ remainingMs: 0 }), "stop");
});

test("a transition is waited out in short gaps", () => {
  for (const reason of ["OFFLINE_CHANGED", "WORKSPACE_IN_TRANSITION"]) {
    const moving = told(Code.Unavailable, reason);
    check(moving, first(), { again: 100 });
    check(moving, first({ failed: 40, elapsedMs: 20_000 }), { again: 1000 });
    check(moving, first({ failed: 40, elapsedMs: 29_500 }), "stop");
    check(moving, first({ failed: 90, elapsedMs: 60_000, remainingMs: 1500 }), { again: 1000 });
    check(told(Code.Unavailable, reason, 9000), first(), { again: 1000 });
  }
});

test("a workspace that does not run is woken once", () => {
  for (const reason of ["WORKSPACE_NOT_RUNNING", "OFFLINE_UNAVAILABLE", "OFFLINE_BUDGET"]) {
    const asleep = told(Code.FailedPrecondition, reason);
    assert.ok(asleep instanceof e.WorkspaceNotRunning);
    check(asleep, first({ failed: 9 }), "wake");
    check(asleep, first({ canWake: false }), "stop");
  }
});

test("a refusal that would recur is never sent again", () => {
  for (const [code, reason] of [
    [Code.Unimplemented, ""],
    [Code.Unimplemented, "HOST_FEATURE_UNAVAILABLE"],
    [Code.Aborted, "REVISION_MISMATCH"],
    [Code.FailedPrecondition, "EDIT_NO_MATCH"],
    [Code.FailedPrecondition, "EDIT_NOT_UNIQUE"],
    [Code.PermissionDenied, "WRITE_POLICY_DENIED"],
    [Code.Unauthenticated, "CREDENTIALS_REQUIRED"],
    [Code.NotFound, "FILE_NOT_FOUND"],
    [Code.InvalidArgument, "IDEMPOTENCY_KEY_REUSED"],
    [Code.FailedPrecondition, "WORKSPACE_QUARANTINED"],
    [Code.ResourceExhausted, "DISK_FULL"],
    [Code.Unknown, "OUTCOME_UNKNOWN"],
    [Code.Internal, "INTERNAL"],
    [Code.DataLoss, "DISK_CORRUPT"],
    [Code.Internal, ""],
    [Code.Canceled, ""],
    [Code.ResourceExhausted, ""],
  ] as const) {
    check(told(code, reason), first(), "stop");
  }
});

test("the contract says what may be repeated, and which feature a method is", () => {
  const effects = Object.fromEntries(FilesService.methods.map((method) => [method.name, effect(method)]));
  assert.deepEqual(effects, {
    GetCapabilities: "safe",
    Stat: "safe",
    Read: "safe",
    List: "safe",
    Search: "safe",
    Patch: "idempotent",
    Write: "idempotent",
    Remove: "idempotent",
    Move: "idempotent",
    MakeDirectory: "idempotent",
  });
  assert.ok(HostService.methods.every((method) => effect(method) !== "unknown"));
  assert.equal(feature(FilesService.method.search), "file_search");
  assert.equal(feature(FilesService.method.move), "file_write");
  assert.equal(feature(FilesService.method.getCapabilities), "get_capabilities");
});

test("every reason of the contract has a class of its own choice", () => {
  const names = Object.values(ErrorReason).filter((name): name is string => typeof name === "string");
  assert.ok(names.length > 40);
  for (const name of names) assert.equal(name.toLowerCase() in BY_REASON, name !== "UNSPECIFIED", name);
});

test("typed errors carry what the contract names", () => {
  const mismatch = errorOf(PATCH, wired(Code.Aborted, "REVISION_MISMATCH", { code: "conflict", actual_revision: "absent" }));
  assert.ok(mismatch instanceof e.RevisionMismatch && mismatch instanceof e.Conflict);
  assert.deepEqual([mismatch.current, mismatch.code, mismatch.reason], ["absent", "conflict", "revision_mismatch"]);
  const many = errorOf(PATCH, wired(Code.FailedPrecondition, "EDIT_NOT_UNIQUE", { lines: "4, 9,12", occurrences: "3" }));
  assert.ok(many instanceof e.EditNotUnique);
  assert.deepEqual([many.lines, many.occurrences], [[4, 9, 12], 3]);
  const none = errorOf(PATCH, wired(Code.FailedPrecondition, "EDIT_NO_MATCH", { nearest_line: "-1", cause: "crlf" }));
  assert.ok(none instanceof e.EditNoMatch);
  assert.deepEqual([none.nearestLine, none.why], [undefined, "crlf"]);
  const old = errorOf(FilesService.method.search, wired(Code.Unimplemented));
  assert.ok(old instanceof e.HostFeatureUnavailable);
  assert.deepEqual([old.feature, old.reason, old.code, old.retryable], ["file_search", "host_feature_unavailable", "conflict", false]);
});

test("another domain's info is no reason of ours", () => {
  const error = wired(Code.Unavailable, "");
  const info = create(ErrorInfoSchema, { reason: "FILE_NOT_FOUND", domain: "example.com" });
  error.details.push({ type: "google.rpc.ErrorInfo", value: toBinary(ErrorInfoSchema, info) });
  const read = errorOf(PATCH, error);
  assert.ok(read instanceof e.DependencyUnavailable);
  assert.equal(read.reason, "");
});

test("pushback counts where the detail is missing, and a bad one forbids", () => {
  const error = wired(Code.Unavailable);
  error.metadata.set("grpc-retry-pushback-ms", "40");
  assert.equal(errorOf(PATCH, error).retryAfterMs, 40);
  error.metadata.set("grpc-retry-pushback-ms", "-1");
  assert.equal(errorOf(PATCH, error).retryable, false);
});

test("the sum is CRC-32C", () => {
  const text = new TextEncoder().encode("123456789");
  assert.equal(extend(0, text), 0xe3069283);
  assert.equal(extend(extend(0, text.subarray(0, 3)), text.subarray(3)), 0xe3069283);
  // RFC 3720, B.4: 32 bytes of zeroes, of ones, and counting up.
  assert.equal(extend(0, new Uint8Array(32)), 0x8a9136aa);
  assert.equal(extend(0, new Uint8Array(32).fill(255)), 0x62a8ab43);
  assert.equal(extend(0, Uint8Array.from({ length: 32 }, (_, at) => at)), 0x46dd794e);
});

const root = new URL("../../", import.meta.url);

test("the stubs are those of the contract", (t) => {
  if (!existsSync(new URL("node_modules/.bin/buf", root))) {
    t.skip("buf is not installed (npm install brings it)");
    return;
  }
  execFileSync(process.execPath, ["generate.mjs", "--check"], { cwd: root, stdio: "pipe" });
});

test("the tools' words and schemas are the Python library's", () => {
  const theirs = readFileSync(new URL("../python/src/dormouse/tools.json", root), "utf8");
  assert.deepEqual(DEFINITIONS, JSON.parse(theirs));
});
