// From the wire's messages to the plain objects of `results`.
import { create } from "@bufbuild/protobuf";
import type { Duration } from "@bufbuild/protobuf/wkt";
import * as pb from "./gen/dormouse/files/v1/files_pb.js";
import type * as r from "./results.js";

/** An enum value's name in lower case; empty for the unset one and for one of tomorrow. */
function word<T extends string>(names: Record<number, string>, number: number): T {
  return (number === 0 ? "" : (names[number] ?? "").toLowerCase()) as T;
}

function time(info: pb.FileInfo): string {
  const stamp = info.modifyTime;
  if (stamp === undefined) return "";
  const moment = new Date(Number(stamp.seconds) * 1000);
  // A file system may hold years that RFC 3339 cannot write.
  const text = Number.isNaN(moment.getTime()) ? "" : moment.toISOString();
  return /^\d{4}-/.test(text) ? `${text.slice(0, 19)}.${String(stamp.nanos).padStart(9, "0")}Z` : "";
}

export function origin(message: pb.Origin | undefined): r.Origin {
  return {
    served_from: word(pb.ServedFrom, message?.servedFrom ?? 0),
    consistency: word(pb.Consistency, message?.consistency ?? 0),
    generation: Number(message?.generation ?? 0n),
  };
}

/** `revision`: the caller asked for it, so its absence is told. */
export function fileInfo(message: pb.FileInfo | undefined, revision: boolean): r.FileInfo {
  const from = message ?? create(pb.FileInfoSchema);
  const info: r.FileInfo = {
    path: from.path,
    type: word(pb.FileType, from.type),
    size_bytes: Number(from.sizeBytes),
    mode: from.mode,
    uid: from.uid,
    gid: from.gid,
    link_count: from.linkCount,
    modify_time: time(from),
    etag: from.etag,
  };
  if (from.rawPath.length > 0) info.raw_path = from.rawPath;
  if (from.type === pb.FileType.SYMLINK) {
    info.symlink_target = from.symlinkTarget;
    if (from.rawSymlinkTarget.length > 0) info.raw_symlink_target = from.rawSymlinkTarget;
  }
  if (revision || from.revision !== undefined) info.revision = from.revision ?? null;
  return info;
}

export function stat(message: pb.StatResponse, revision: boolean): r.StatResult {
  return { ...fileInfo(message.file, revision), origin: origin(message.origin) };
}

export function read(content: Uint8Array, file: r.FileInfo, from: r.Origin, offset: number, end: pb.ReadEnd): r.ReadResult {
  return {
    content,
    file,
    origin: from,
    offset,
    revision: end.revision ?? null,
    line_count: end.lineCount === undefined ? null : Number(end.lineCount),
    changed: end.changed,
  };
}

function line(message: pb.Line): r.Line {
  const plain: r.Line = { text: message.text, clipped: message.clipped };
  if (message.raw.length > 0) plain.raw = message.raw;
  return plain;
}

export function match(message: pb.Match): r.Match {
  const found: r.Match = {
    path: message.path,
    line: message.line,
    column: message.column,
    end_column: message.endColumn,
    text: message.text,
    text_clipped: message.textClipped,
    before: message.before.map(line),
    after: message.after.map(line),
  };
  if (message.rawPath.length > 0) found.raw_path = message.rawPath;
  if (message.rawText.length > 0) found.raw_text = message.rawText;
  return found;
}

export function searchSummary(message: pb.SearchEnd): r.SearchSummary {
  const { skipped } = message;
  return {
    truncated: message.truncated,
    stop_reason: word(pb.StopReason, message.stopReason),
    files_scanned: Number(message.filesScanned),
    skipped: {
      binary: Number(skipped?.binary ?? 0n),
      too_large: Number(skipped?.tooLarge ?? 0n),
      special: Number(skipped?.special ?? 0n),
      unreadable: Number(skipped?.unreadable ?? 0n),
    },
  };
}

export function listSummary(message: pb.ListEnd): r.ListSummary {
  return {
    truncated: message.truncated,
    stop_reason: word(pb.StopReason, message.stopReason),
    unreadable: Number(message.unreadable),
  };
}

export function write(message: pb.WriteResponse | pb.PatchResponse): r.WriteResult {
  return {
    revision: message.revision,
    previous_revision: message.previousRevision ?? null,
    bytes_written: Number(message.bytesWritten),
    durable: message.durable,
    file: fileInfo(message.file, false),
    replayed: message.replayed,
  };
}

export function patch(message: pb.PatchResponse): r.PatchResult {
  return { ...write(message), replacements: message.replacements, replaced_open_file: message.replacedOpenFile };
}

export function remove(message: pb.RemoveResponse): r.RemoveResult {
  return {
    previous_revision: message.previousRevision ?? null,
    durable: message.durable,
    replayed: message.replayed,
  };
}

export function moved(message: pb.MoveResponse | pb.MakeDirectoryResponse): r.MoveResult {
  return { file: fileInfo(message.file, false), durable: message.durable, replayed: message.replayed };
}

function seconds(duration: Duration | undefined): number {
  return duration === undefined ? 0 : Number(duration.seconds) + duration.nanos / 1e9;
}

export function capabilities(message: pb.GetCapabilitiesResponse): r.Capabilities {
  const { limits } = message;
  return {
    features: message.features.map((feature) => word(pb.Feature, feature)).filter((feature) => feature !== ""),
    limits: {
      max_request_bytes: Number(limits?.maxRequestBytes ?? 0n),
      max_patch_file_bytes: Number(limits?.maxPatchFileBytes ?? 0n),
      max_patch_edits: limits?.maxPatchEdits ?? 0,
      max_search_matches: limits?.maxSearchMatches ?? 0,
      max_search_globs: limits?.maxSearchGlobs ?? 0,
      max_search_file_bytes: Number(limits?.maxSearchFileBytes ?? 0n),
      max_search_pattern_bytes: limits?.maxSearchPatternBytes ?? 0,
      max_search_result_bytes: Number(limits?.maxSearchResultBytes ?? 0n),
      max_glob_bytes: limits?.maxGlobBytes ?? 0,
      max_list_entries: limits?.maxListEntries ?? 0,
      max_list_depth: limits?.maxListDepth ?? 0,
      max_offline_read_bytes: Number(limits?.maxOfflineReadBytes ?? 0n),
      search_budget: seconds(limits?.searchBudget),
      offline_budget: seconds(limits?.offlineBudget),
      idempotency_retention: seconds(limits?.idempotencyRetention),
    },
    server_version: message.serverVersion,
  };
}
