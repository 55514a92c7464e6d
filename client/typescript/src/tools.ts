// The tools for agents: `search_files` and `edit_file` as plain functions over a workspace's files.
//
// A tool never throws for what a model did wrong or a host refused: it answers with a text that names the code, the fact and
// the next call.
import * as e from "./errors.js";
import type { Files } from "./files.js";
import type { Edit, SearchOptions } from "./requests.js";
import type { Match, SearchResult } from "./results.js";
import { decode } from "./tool_arguments.js";
import { type Definition, DEFINITIONS, type Schema } from "./tool_definitions.js";
import type { Cell } from "./workspace.js";

/** The largest answer of `search_files`, in bytes, unless told otherwise. */
export const OUTPUT_BYTES = 64 * 1024;
const OUTPUT_BYTES_MIN = 1024;

const ALTERNATIVES: Record<string, string> = {
  file_search: "run `grep -rn` in a command instead",
  file_patch: "read the file, and write the whole of it back instead",
  file_revision: "read the file, and write the whole of it back instead",
};

/** What a tool says to the model. */
export interface ToolOutput {
  text: string;
  is_error: boolean;
}

/** One tool. `inputSchema` is a JSON schema without references; `annotations` are those of the Model Context Protocol. */
export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: Schema;
  readonly annotations: Definition["annotations"];
  /** Runs it. `args`: an object, or the JSON text of one. What went wrong is told in the output. */
  call(args: unknown, options?: { signal?: AbortSignal }): Promise<ToolOutput>;
}

/** What `workspaceTools` takes. */
export interface ToolOptions {
  /** The tools that these allow; both need "files". Left out: ["files"]. */
  permissions?: readonly string[];
  /** The largest answer of `search_files`, in bytes. */
  outputBytes?: number;
  /** By feature ("file_search", "file_patch"): what a model is told to do on a host that lacks it. */
  alternatives?: Record<string, string>;
}

interface Session {
  files: Files;
  signal: { signal?: AbortSignal };
  outputBytes: number;
}

type Run = (args: Record<string, unknown>, session: Session) => Promise<string>;

const RUNS: Record<string, Run> = { search_files: searchFiles, edit_file: editFile };

/** The tools of a workspace, or of its cell. */
export function workspaceTools(cell: Cell, options: ToolOptions = {}): Tool[] {
  const { permissions = ["files"], outputBytes = OUTPUT_BYTES } = options;
  if (typeof permissions === "string") throw new TypeError("permissions is a list of names, not one text");
  if (!(outputBytes >= OUTPUT_BYTES_MIN)) throw new TypeError(`outputBytes is at least ${OUTPUT_BYTES_MIN}`);
  const ways = { ...ALTERNATIVES, ...options.alternatives };
  return DEFINITIONS.filter((definition) => permissions.includes(definition.permission)).map((definition) => ({
    name: definition.name,
    description: definition.description,
    inputSchema: definition.input_schema,
    annotations: definition.annotations,
    async call(args, { signal } = {}) {
      const run = RUNS[definition.name] as Run;
      try {
        const decoded = decode(definition.input_schema, args);
        const session = { files: cell.files, signal: signal ? { signal } : {}, outputBytes };
        return { text: await run(decoded, session), is_error: false };
      } catch (error) {
        if (!(error instanceof e.DormouseError)) throw error;
        if (error instanceof e.HostFeatureUnavailable) {
          error.details["next"] = ways[error.feature] ?? "use another tool for this until the host is upgraded";
        }
        return { text: explain(error), is_error: true };
      }
    },
  }));
}

// ---- search_files

async function searchFiles(args: Record<string, unknown>, session: Session): Promise<string> {
  const options: SearchOptions = { ...session.signal };
  if ("regex" in args) options.regex = args["regex"] as boolean;
  if ("case_insensitive" in args) options.caseInsensitive = args["case_insensitive"] as boolean;
  if ("include" in args) options.include = args["include"] as string[];
  if ("exclude" in args) options.exclude = args["exclude"] as string[];
  if ("context_lines" in args) options.contextLines = args["context_lines"] as number;
  if ("max_matches" in args) options.maxMatches = args["max_matches"] as number;
  const pattern = args["pattern"] as string;
  try {
    const found = await session.files.search(args["path"] as string, pattern, options);
    return renderSearch(found, session.outputBytes, hint(pattern, options.regex ?? false, found));
  } catch (error) {
    if (error instanceof e.DormouseError && error.reason === "invalid_pattern" && options.regex) {
      error.details["next"] ??= "mend the expression there, or leave `regex` out to search for the literal text";
    }
    throw error;
  }
}

/** Where nothing was found and the pattern looks like the other kind, the other kind. */
function hint(pattern: string, regex: boolean, found: SearchResult): string {
  if (found.matches.length > 0 || found.truncated) return "";
  const expressive = ["\\", ".*", ".+", "|", "[", "^", "$", "(?"].some((part) => pattern.includes(part));
  if (!regex) return expressive ? "the pattern was taken literally; set `regex` to true if it is a regular expression" : "";
  const literal = !expressive && /[.()+*?{}]/.test(pattern);
  return literal ? "the pattern was taken as a regular expression; leave `regex` out if it is literal text" : "";
}

function shown(match: Match): Record<string, unknown> {
  return {
    path: match.path,
    line: match.line,
    column: match.column,
    text: match.text,
    ...(match.text_clipped ? { text_clipped: true } : {}),
    ...(match.before.length > 0 ? { before: match.before.map((line) => line.text) } : {}),
    ...(match.after.length > 0 ? { after: match.after.map((line) => line.text) } : {}),
  };
}

/** The answer in at most `outputBytes`: whole matches from the first on, the rest counted in `omitted_matches`. */
export function renderSearch(found: SearchResult, outputBytes: number, hint = ""): string {
  const tail = (omitted: number) => ({
    truncated: found.truncated,
    stop_reason: found.stop_reason,
    files_scanned: found.files_scanned,
    served_from: found.origin.served_from,
    omitted_matches: omitted,
    ...(hint === "" ? {} : { hint }),
  });
  let room = outputBytes - Buffer.byteLength(JSON.stringify({ matches: [], ...tail(found.matches.length) }));
  const matches: unknown[] = [];
  for (const match of found.matches) {
    const entry = shown(match);
    // And the comma between two.
    room -= Buffer.byteLength(JSON.stringify(entry)) + (matches.length > 0 ? 1 : 0);
    if (room < 0) break;
    matches.push(entry);
  }
  return JSON.stringify({ matches, ...tail(found.matches.length - matches.length) });
}

// ---- edit_file

interface WireEdit {
  old_text: string;
  new_text: string;
  replace_all?: boolean;
}

async function editFile(args: Record<string, unknown>, session: Session): Promise<string> {
  if ("edits" in args === "content" in args) {
    throw new e.InvalidRequest("an edit takes exactly one of `edits` and `content`", {
      code: "invalid_argument",
      reason: "invalid_request",
      details: { next: "call edit_file again with one of the two" },
    });
  }
  const path = args["path"] as string;
  const pinned = (args["expected_revision"] as string | undefined) ?? (await revisionNow(path, "content" in args, session));
  const change =
    "content" in args
      ? { content: args["content"] as string }
      : {
          edits: (args["edits"] as WireEdit[]).map(
            (edit): Edit => ({ oldText: edit.old_text, newText: edit.new_text, replaceAll: edit.replace_all ?? false }),
          ),
        };
  try {
    const done = await session.files.patch({ path, ...change, expectedRevision: pinned, ...session.signal });
    return JSON.stringify({
      revision: done.revision,
      previous_revision: done.previous_revision,
      replacements: done.replacements,
      bytes_written: done.bytes_written,
      durable: done.durable,
    });
  } catch (error) {
    if (error instanceof e.DormouseError) error.details["next"] ??= nextEdit(error, pinned);
    throw error;
  }
}

/** The revision that the edit is held to: the file's own, or "absent" for content where there is no file. */
async function revisionNow(path: string, creates: boolean, session: Session): Promise<string> {
  let info;
  try {
    info = await session.files.stat(path, { revision: true, ...session.signal });
  } catch (error) {
    if (error instanceof e.NotFound && error.reason === "file_not_found" && creates) return "absent";
    throw error;
  }
  if (info.revision) return info.revision;
  if (info.type === "regular") {
    throw new e.HostFeatureUnavailable("this host gives no revision of the file, so the edit cannot be held to one", {
      code: "conflict",
      reason: "host_feature_unavailable",
      details: { feature: "file_revision" },
    });
  }
  if (info.type === "symlink") {
    throw new e.Conflict(`${path} is a symbolic link to ${info.symlink_target ?? ""}`, {
      code: "conflict",
      reason: "symlink_refused",
      details: { next: "call edit_file again with the path of the file itself" },
    });
  }
  throw new e.Conflict(`${path} is no regular file but a ${info.type || "thing of an unknown type"}`, {
    code: "conflict",
    reason: "not_a_regular_file",
    details: { next: "name a regular file" },
  });
}

function nextEdit(error: e.DormouseError, revision: string): string {
  if (error instanceof e.RevisionMismatch) {
    return (
      "the file has changed since: look at it again, then call edit_file with expected_revision " +
      (error.current ?? "left out")
    );
  }
  if (error instanceof e.EditNoMatch) {
    const parts: string[] = [];
    if (error.nearestLine !== undefined) {
      parts.push(`the nearest place is line ${error.nearestLine}, which reads ${JSON.stringify(error.nearestText ?? "")}`);
    }
    const diverges = error.details["diverges_at_line"];
    if (diverges !== undefined) parts.push(`it diverges at line ${diverges}`);
    if (error.why) parts.push(`the cause is ${error.why}`);
    parts.push(`nothing was changed; mend old_text and call edit_file with expected_revision ${revision}`);
    return parts.join("; ");
  }
  if (error instanceof e.EditNotUnique) {
    const where = error.lines.length > 0 ? ` (lines ${error.lines.join(", ")})` : "";
    return (
      `nothing was changed; add lines around old_text until it occurs once${where}, or set replace_all, and call ` +
      `edit_file with expected_revision ${revision}`
    );
  }
  return error.retryable ? "nothing is known to be changed; call edit_file again" : "";
}

// ---- errors

/** An error as a text for the model: code, fact, next call. */
export function explain(error: e.DormouseError): string {
  // Of these two the code says as much as the reason.
  const plain = ["", error.code, "invalid_request"].includes(error.reason);
  const head = plain ? error.code : `${error.code} (${error.reason})`;
  const text = `${head}: ${error.message}`;
  let step = error.details["next"] ?? "";
  if (step === "") {
    const missing = error.details["missing"];
    if (error instanceof e.WorkspaceNotRunning) step = "the workspace has to be woken first";
    else if (error.reason === "file_not_found") step = `check the path${missing ? `; ${missing} is missing` : ""}`;
    else if (error.retryable) step = "try the same call again later";
  }
  return step === "" ? `${text}.` : `${text}. Next: ${step}.`;
}
